"""Which parts of a long text are kept: its head, its tail, and lines between that look like errors.

Rule: a part ends at a line end where one is near, and never inside a grapheme (an emoji with its modifiers, a letter
with its accents), so never inside a code point or a surrogate pair either.
"""

import re
from collections.abc import Iterator

import regex

Span = tuple[int, int]

_FAILURES = ("error", "exception", "traceback", "fatal", "panic", "failed", "failure", "aborted")
_REFUSALS = ("denied", "refused", "undefined", "not found", "timed out")
ERROR_WORDS = tuple(
    spelling for word in (*_FAILURES, *_REFUSALS) for spelling in (word, word.capitalize(), word.upper())
)
"""In the spellings that occur: looking each up takes a tenth of the time of one pattern that ignores case."""

ERROR_LINE_CHARACTERS = 240
ERROR_LINES = 200
"""Lines looked at; with more errors than this, the first ones tell the story."""

LOOK_BACK = 1024
_GRAPHEME = regex.compile(r"\X")
_SURE_START = regex.compile(r"(?r)(?<=[\x00-\x7f\u4e00-\u9fff])[\x00-\x09\x0b-\x7f\u4e00-\u9fff]")
"""Two characters in a row that join nothing (nor are CR LF): the second surely begins one. Searched backwards."""


def boundary(text: str, at: int) -> int:
    """The last border between graphemes at or before `at`.

    Graphemes are read from the nearest place before `at` that surely begins one, or from some `LOOK_BACK` characters
    before. Source of the rules: Unicode UAX #29, as `\\X` of `regex` has them.
    """
    if at <= 0 or at >= len(text):
        return max(0, min(at, len(text)))
    if text.isascii():
        return at - (text[at - 1] == "\r" and text[at] == "\n")
    floor = max(0, (at // LOOK_BACK - 1) * LOOK_BACK)
    sure = _SURE_START.search(text, floor, at)
    border = sure.start() if sure else floor
    # Whether a grapheme ends at `at` hangs on nothing behind it; a slice, for flags are counted back to the beginning.
    start = border
    for grapheme in _GRAPHEME.finditer(text[start : at + 1]):
        if start + grapheme.end() > at:
            break
        border = start + grapheme.end()
    return border - 1 if _splits_surrogates(text, border) else border


def error_lines(text: str) -> tuple[Span, ...]:
    """Lines that look like errors, shortened, without their line ends; found in one pass."""
    return tuple(span for span, _ in zip(_error_lines(text), range(ERROR_LINES), strict=False))


def _error_lines(text: str) -> Iterator[Span]:
    if text.isascii():
        small = text.lower()
        if not any(word in small for word in (*_FAILURES, *_REFUSALS)):
            return
    present = [word for word in ERROR_WORDS if word in text]
    pattern = re.compile("|".join(present))
    at = 0
    while present and (match := pattern.search(text, at)):
        start = max(text.rfind("\n", at, match.start()) + 1, at, match.start() - ERROR_LINE_CHARACTERS // 2)
        end = text.find("\n", match.end())
        end = len(text) if end < 0 else end
        start = boundary(text, start)
        yield start, boundary(text, min(end, start + ERROR_LINE_CHARACTERS))
        at = end


def spans(text: str, room: int, head_share: float, errors: tuple[Span, ...]) -> tuple[Span, ...]:
    """What `room` characters can hold of a longer `text`: head, error lines of the middle (an eighth of it), tail."""
    lines_room = room // 8 if errors else 0
    head_room = int((room - lines_room) * head_share)
    head_stop = _line_end(text, head_room)
    tail_start = _line_start(text, len(text) - (room - lines_room - head_room))
    return (0, head_stop), *within(errors, head_stop, tail_start, lines_room), (tail_start, len(text))


def within(lines: tuple[Span, ...], start: int, stop: int, room: int) -> Iterator[Span]:
    """The lines between `start` and `stop`, as many as so many characters hold."""
    for line in lines:
        if line[0] < start or line[1] > stop:
            continue
        room -= line[1] - line[0] + 1
        if room < 0:
            return
        yield line


def _line_end(text: str, at: int) -> int:
    """After the last line end in the latter half of the first `at` characters, else at a grapheme's border."""
    newline = text.rfind("\n", at // 2, at)
    return newline + 1 if newline >= 0 else boundary(text, at)


def _line_start(text: str, at: int) -> int:
    """After the first line end in the former half of what follows `at`, else at a grapheme's border."""
    newline = text.find("\n", at, at + (len(text) - at) // 2)
    return newline + 1 if newline >= 0 else boundary(text, at)


def _splits_surrogates(text: str, at: int) -> bool:
    return 0 < at < len(text) and "\ud800" <= text[at - 1] <= "\udbff" and "\udc00" <= text[at] <= "\udfff"
