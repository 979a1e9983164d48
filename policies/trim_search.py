"""How much of a tool output fits a number of tokens.

Rule: what is counted is what would be sent, so the answer is exact; a bounded number of counts, each of a text about as
long as the budget, never of the original. A plain text that has been measured is cut at its marks instead, with next to
no count: then the answer is no exact one, but never too small.
"""

from bisect import bisect_left
from collections.abc import Callable

import msgspec

from policies import json_ladder, json_rows
from policies.conversation import Message
from policies.folding import folded
from policies.measuring import Marks, Measure
from policies.memory import Form, Trim
from policies.text_spans import Span, error_lines, spans, within
from policies.trimmed_text import fewer_rows, render, shorter_json, whole

Count = Callable[[str], int]

TRIES = 6
FOLDED_CHARACTERS = 64
"""Folding that saves fewer characters is not worth its markers."""

MARKED_TOKENS = 512
"""Below this budget marks are too coarse."""
MARKER_TOKENS = 96
"""What the markers in a text may cost, taken high; more where the model's own tokens are more."""

GOOD_SHARE = 0.9
"""A search ends when this share of the budget is used."""

ROWS = 4
"""With fewer items of an array that fit whole, what is long is the items: they are made shorter themselves."""
SPARSER = 1.5
"""How much sparser than the whole text what is kept of it may be: without white space, or of other items."""

CHARACTERS_A_TOKEN = 3
"""How many characters of error lines are tried for a token: they are counted, and fewer taken if they are dense."""

HOPELESS = 3
"""Where even the last step has so many times the characters that fit by the density of the whole, no step fits."""

TOKEN_CHARACTERS = 16
"""A text with more characters than this for each token of the budget is taken to be too long without a count."""


class Fit(msgspec.Struct, frozen=True, gc=False):
    """A trim, the text it renders to and that text's tokens."""

    trim: Trim
    text: str
    tokens: int


def fit(message: Message, budget: int, head_share: float, count: Count, handle: str = "") -> Fit | None:
    """The trim that keeps most of `message` in `budget` tokens, or None where not even the marker fits.

    `handle` is where the original will be; it is named where something is left out.
    """
    if message.text.lstrip()[:1] not in ("{", "[", '"'):
        return _fit_excerpt(message, "text", budget, head_share, count, handle)
    if (found := _fit_rows(message, budget, head_share, count, handle)) is not None:
        return found
    try:
        value = json_ladder.parse(message.text)
    except ValueError:
        return _fit_excerpt(message, "text", budget, head_share, count, handle)
    found = _fit_json(message, value, budget, count, handle)
    return found or _fit_excerpt(message, "wrapped", budget, head_share, count, handle)


def _fit_rows(message: Message, budget: int, head_share: float, count: Count, handle: str) -> Fit | None:
    """The first and last items of a long array, if enough of them fit whole; what is kept is counted once."""
    try:
        found = json_rows.rows(message.text)
        if found is None:
            return None
        size, density = len(found.items), message.tokens / len(message.text)
        if ROWS * len(message.text) / size > SPARSER * budget / density:
            return None
        room = budget - count(fewer_rows(found, _rows(message, 0, size, size, handle)))
        head, head_tokens = json_rows.fitting(found.items, int(room * head_share), density, count)
        tail, tail_tokens = json_rows.fitting(found.items[head:], room - head_tokens, density, count, from_end=True)
        if not (head and tail and ROWS <= head + tail <= size - 2):
            return None
        trim = _rows(message, head, size - tail, size, handle)
        text = whole(fewer_rows(found, trim))
    except ValueError:
        return None
    return Fit(trim, text, budget - room + head_tokens + tail_tokens)


def _rows(message: Message, head: int, tail: int, stop: int, handle: str) -> Trim:
    return _trim(message, "rows", spans=((0, head), (tail, stop)), handle=handle)


def _fit_json(message: Message, value: json_ladder.Json, budget: int, count: Count, handle: str) -> Fit | None:
    """The first step of the ladder that is found to fit; a later step keeps less.

    A step is looked for by length, by how dense the text was that was counted last; so few are counted.
    """
    found: Fit | None = None
    density = message.tokens / len(message.text)
    low, high = 0, len(json_ladder.LADDER)
    if json_ladder.is_longer(value, high - 1, int(HOPELESS * budget / density)):
        return None
    for _ in range(TRIES):
        level = _level(value, low, high, int(budget / density))
        if level == high and found is not None:
            break
        trim = _of_level(message, min(level, high - 1), handle)
        text = whole(shorter_json(value, trim))
        tokens = count(text) if len(text) <= budget * TOKEN_CHARACTERS else budget + 1
        density = tokens / len(text)
        if tokens <= budget:
            found, high = Fit(trim, text, tokens), trim.level
        else:
            low = trim.level + 1
        if low >= high:
            break
    return found


def _level(value: json_ladder.Json, low: int, high: int, characters: int) -> int:
    """The first step from `low` on with no more than so many characters; `high` where none before has."""
    return low + bisect_left(range(low, high), True, key=lambda at: not json_ladder.is_longer(value, at, characters))


def _of_level(message: Message, level: int, handle: str) -> Trim:
    return _trim(message, "json", level=level, handle=handle if level else "")


def _fit_excerpt(message: Message, form: Form, budget: int, head_share: float, count: Count, handle: str) -> Fit | None:
    """Head and tail of a text, its repeated lines folded if that makes it shorter."""
    short = folded(message.text) if form == "text" else message.text
    if len(short) + FOLDED_CHARACTERS > len(message.text):
        return _fit_spans(message, message.text, form, budget, head_share, count, handle)
    whole_trim = _trim(message, "folded")
    tokens = count(whole(short)) if len(short) <= budget * TOKEN_CHARACTERS else budget + 1
    if tokens <= budget:
        return Fit(whole_trim, whole(short), tokens)
    return _fit_spans(message, short, "folded", budget, head_share, count, handle)


def _fit_spans(
    message: Message, text: str, form: Form, budget: int, head_share: float, count: Count, handle: str
) -> Fit | None:
    """Rooms in characters are tried from the text's mean density on, the best is kept; `text` may be folded."""
    if form == "text" and budget >= MARKED_TOKENS and isinstance(count, Measure):
        return _fit_marked(message, count.marks(message.digest, text), budget, head_share, count, handle)
    errors = error_lines(text)
    best: Fit | None = None
    low, high = 0, len(text)
    room = len(message.text) * budget // message.tokens
    room = room if room < high else high // 2
    for _ in range(TRIES):
        trim = _trim(message, form, spans=spans(text, room, head_share, errors), handle=handle)
        rendered = render(message.text, trim)
        tokens = count(rendered)
        if tokens <= budget:
            best, low = Fit(trim, rendered, tokens), room
        else:
            high = room
        if high - low < 2 or GOOD_SHARE * budget <= tokens <= budget:
            break
        room = _next_room(room, budget / max(1, tokens), low, high)
    return best or _fit_marker(message, text, form, budget, count, handle)


def _fit_marked(
    message: Message,
    marks: Marks,
    budget: int,
    head_share: float,
    count: Count,
    handle: str,
) -> Fit:
    """Whole pieces of head and tail, and lines of the middle that look like errors (an eighth of the room)."""
    text, room = message.text, budget - int(MARKER_TOKENS * max(1.0, marks.scale))
    lines_room = room // 8 if marks.errors else 0
    head_stop, head = marks.head(int((room - lines_room) * head_share))
    tail_start, tail = marks.tail(room - lines_room - head)
    lines = tuple(within(marks.errors, head_stop, tail_start, lines_room * CHARACTERS_A_TOKEN))
    while lines and (cost := count("\n".join([text[start:stop] for start, stop in lines]))) > lines_room:
        lines = lines[: len(lines) * lines_room // cost]
    spans = ((0, head_stop), *lines, (tail_start, len(text)))
    trim = _trim(message, "text", spans=spans, handle=handle)
    return Fit(trim, render(text, trim), budget - room + head + (lines_room if lines else 0) + tail)


def _next_room(room: int, ratio: float, low: int, high: int) -> int:
    """The room scaled by how far the last one was off, or half way where that leads out of the bracket."""
    scaled = int(room * ratio * 0.97)
    return scaled if low < scaled < high else (low + high) // 2


def _fit_marker(message: Message, text: str, form: Form, budget: int, count: Count, handle: str) -> Fit | None:
    """Nothing but the marker: the last resort for a text whose ends are far denser than its mean."""
    trim = _trim(message, form, spans=((0, 0), (len(text), len(text))), handle=handle)
    rendered = render(message.text, trim)
    tokens = count(rendered)
    return Fit(trim, rendered, tokens) if tokens <= budget else None


def _trim(message: Message, form: Form, *, spans: tuple[Span, ...] = (), level: int = 0, handle: str = "") -> Trim:
    return Trim(message.digest, form, message.tokens, 0, spans, level, handle=handle)
