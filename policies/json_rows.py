"""A long array of JSON cut to its first and last items, each whole and, white space aside, as it was written.

Rule: what stands around the array stays; in the place of the items left out stands one that says how many. Nothing is
read but the borders of what is kept and dropped.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import msgspec

MIN_ITEMS: Final = 8
"""A shorter array is hardly what makes a text long."""
MOST_AROUND: Final = 0.5
"""With more than this share of a text around its longest array, that is not what makes it long."""
DEEP: Final = 8
"""Objects are opened so deep in search of the array."""

TRIES: Final = 8
"""Counts for either end: a few items are counted at a time, each once."""
BOLD: Final = 0.9
"""Of the room that is left as much is tried at once, by how dense what was counted before is."""
FULL: Final = 0.97
TOKEN_BYTES: Final = 16
"""An item with more bytes than this for each token of the room is taken to be too long without a count."""
JOINT_TOKENS: Final = 3
"""What a joint between two parts that were counted apart may cost, taken high."""

_ARRAY: Final = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])


class Rows(NamedTuple):
    """The items of an array, and what stands before and behind them; `members` are those of the whole, if an object."""

    before: bytes
    items: Sequence[msgspec.Raw]
    after: bytes
    members: Mapping[str, msgspec.Raw] | None

    def cut(self, head: int, tail: int, fate: str) -> str:
        """With the first `head` and the last `tail` items; `fate` is what became of the others. Raises `ValueError`."""
        items, missing = self.items, len(self.items) - head - tail
        marker = b'"[kvgate: %d of %d items left out, %b]"' % (missing, len(items), fate.encode())
        kept = b",".join([*items[:head], marker, *items[len(items) - tail :]])
        return _compact(self.before + kept + self.after)


def rows(text: str) -> Rows | None:
    """What makes a text long, if it is the items of one array. Raises `ValueError` where it is not JSON."""
    try:
        return _rows(text.encode().strip())
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError("not JSON that can be read fast") from error


def _rows(data: bytes) -> Rows | None:
    before, after, whole = b"", b"", len(data)
    members: Mapping[str, msgspec.Raw] | None = None
    for _ in range(DEEP):
        if data[:1] != b"{":
            break
        opened = _OBJECT.decode(data)
        members = opened if members is None else members
        longest = max(opened, key=lambda name: len(opened[name]), default=None)
        if longest is None or len(opened[longest]) < whole * (1 - MOST_AROUND):
            return None
        named = [b"%b:%b" % (msgspec.json.encode(name), opened[name] if name != longest else b"") for name in opened]
        place = list(opened).index(longest)
        before += b"{" + b",".join(named[: place + 1])
        after = b"".join([b"," + member for member in named[place + 1 :]]) + b"}" + after
        data = bytes(opened[longest])
    if data[:1] != b"[":
        return None
    items = _ARRAY.decode(data)
    return Rows(before + b"[", items, b"]" + after, members) if len(items) >= MIN_ITEMS else None


def fitting(
    items: Sequence[msgspec.Raw], room: int, density: float, count: Callable[[str], int], *, from_end: bool = False
) -> tuple[int, int]:
    """How many of the first items have at most `room` tokens together, and how many those are; nearly as many as fit.

    `from_end`: of the last ones. `density`: about how many tokens a byte has. Raises `ValueError` for what is nested
    beyond all reason.
    """
    kept = used = 0
    for _ in range(TRIES):
        if kept == len(items) or used >= FULL * room:
            break
        most = int(BOLD * (room - used) / density)
        end = len(items) - kept
        # No item has less than a byte: of a million no more are touched than could fit.
        left = items[max(0, end - most - 1) : end][::-1] if from_end else items[kept : kept + most + 1]
        some = _first(left, most)
        if len(some[0]) > TOKEN_BYTES * room:
            break
        part = b",".join(reversed(some) if from_end else some)
        size, tokens = sum(map(len, some)), count(_compact(b"[%b]" % part)) + JOINT_TOKENS
        density = tokens / size
        if used + tokens <= room:
            kept, used = kept + len(some), used + tokens
        elif len(some) == 1:
            break
    return kept, used


def _first(items: Sequence[msgspec.Raw], most_bytes: int) -> Sequence[msgspec.Raw]:
    """As many as so many bytes hold, but at least one."""
    for stop, size in enumerate(accumulate(map(len, items))):
        if size > most_bytes:
            return items[: max(1, stop)]
    return items


def _compact(data: bytes) -> str:
    try:
        return msgspec.json.format(data, indent=-1).decode()
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
