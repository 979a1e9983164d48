"""Which lines of outputs say something: the odd ones out.

Rule: a line whose shape (its numbers and single letters taken out) comes again and again in an output says what the
others say; one that is like few others is why somebody looked. Where nearly every line is odd, as in a listing of code,
none is. Linear in the text: of an output so many lines are looked at.
"""

import re
from collections import Counter
from typing import Final

import msgspec

from policies.text_spans import error_lines

OUTPUT_LINES: Final = 400
"""Lines of one output that are looked at: half from its beginning, half from its end."""
LINE_CHARACTERS: Final = 400
"""Of a longer line the rest is not looked at, unless it is JSON, whose members are lines."""
RARE: Final = 2
ODD_SHARE: Final = 0.3
"""With a larger share of odd lines than this an output has no odd ones."""
FEW_LINES: Final = 12
MOST_OF_AN_OUTPUT: Final = 8

_VARIES = re.compile(r"\d+|\b[a-zA-Z]\b")
_APART = "\x1e"
_WORD = re.compile(r"[^\W\d_]{3}")
_MEMBER = re.compile(r"(?<=[,{\[])\s*(?=[\"{\[])")


class Output(msgspec.Struct, frozen=True):
    """Lines of one output, with the shape of each, and those of them that look like errors."""

    lines: tuple[str, ...]
    shapes: tuple[str, ...]
    errors: tuple[str, ...]


def read(text: str) -> Output:
    """The lines of an output that are looked at."""
    is_json = text.lstrip()[:1] in ("{", "[")
    lines = _MEMBER.split(text) if is_json else text.split("\n")
    if len(lines) > OUTPUT_LINES:
        lines = [*lines[: OUTPUT_LINES // 2], *lines[-OUTPUT_LINES // 2 :]]
    lines = [line[:LINE_CHARACTERS].strip(" \t\r,") for line in lines]
    errors = [text[start:stop] for start, stop in error_lines(text)[:MOST_OF_AN_OUTPUT]] if not is_json else []
    return Output(tuple(lines), _shapes(lines), tuple(errors))


def _shapes(lines: list[str]) -> tuple[str, ...]:
    """The shape of each line, found in one pass over all of them."""
    shapes = _VARIES.sub("0", _APART.join(lines)).split(_APART)
    if len(shapes) != len(lines):
        return tuple([_VARIES.sub("0", line) for line in lines])
    return tuple(shapes)


def odd(output: Output) -> list[str]:
    """The lines of an output that are like few others of it, in order: some from its beginning, some from its end."""
    frequencies = Counter(output.shapes)
    pairs = zip(output.lines, output.shapes, strict=True)
    found = [line for line, shape in pairs if frequencies[shape] <= RARE and _WORD.search(line)]
    if len(output.lines) > FEW_LINES and len(found) > ODD_SHARE * len(output.lines):
        return []
    half = MOST_OF_AN_OUTPUT // 2
    return found if len(found) <= MOST_OF_AN_OUTPUT else [*found[:half], *found[-half:]]
