"""Repeated lines of a text folded into one.

Rule: only lines that follow one another and are the same to the last character; the line stays, with how often it came.
"""

from collections.abc import Iterator
from itertools import groupby

REPEATS = 3
"""Fewer repeats than this stay as they are."""


def folded(text: str) -> str:
    """`text` with runs of equal lines folded."""
    return "\n".join(_lines(text))


def _lines(text: str) -> Iterator[str]:
    for line, run in groupby(text.split("\n")):
        times = sum(1 for _ in run)
        if times < REPEATS or not line.strip():
            yield from (line,) * times
        else:
            yield f"{line} [kvgate: this line x {times}]"
