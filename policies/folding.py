"""Repeated lines of a text folded into one.

Rule: only lines that follow one another and are the same to the last character; the line stays, with how often it came.
"""

from collections.abc import Iterator
from itertools import groupby, islice
from operator import eq

REPEATS = 3
"""Fewer repeats than this stay as they are."""


def folded(text: str) -> str:
    """`text` with runs of equal lines folded; the very same where there are none."""
    lines = text.split("\n")
    if not any(map(eq, lines, islice(lines, REPEATS - 1, None))):
        return text
    return "\n".join(_lines(lines))


def _lines(lines: list[str]) -> Iterator[str]:
    for line, run in groupby(lines):
        times = sum(1 for _ in run)
        if times < REPEATS or not line.strip():
            yield from (line,) * times
        else:
            yield f"{line} [kvgate: this line x {times}]"
