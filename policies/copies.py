"""Tool outputs that repeat an earlier one, and what becomes of them when the earlier one is dropped.

Rule: a pointer never points to nothing. The first copy that is sent is sent in full (or trimmed as its original was);
only the ones behind it point to it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from policies.conversation import Message
from policies.trimmed import Trimmed


class Copy(msgspec.Struct, frozen=True, gc=False):
    """A message whose output is that of the earlier message `head`, and what is sent in its place."""

    head: int
    pointer: Trimmed


def families(copies: Mapping[int, Copy]) -> dict[int, list[int]]:
    """The copies of each head, in order."""
    found: dict[int, list[int]] = {}
    for at in sorted(copies):
        found.setdefault(copies[at].head, []).append(at)
    return found


def promoted(
    messages: Sequence[Message],
    lost: Mapping[int, int | None],
    copies: Mapping[int, Copy],
    trimmed: Mapping[int, Trimmed],
) -> tuple[Mapping[int, Copy], Mapping[int, Trimmed]]:
    """The copies and trims after some heads no longer say what they said; `lost` names the copy that stands in, if any.

    The stand-in says what its head said, and the copies behind it point to it.
    """
    left, cut, members = dict(copies), dict(trimmed), families(copies)
    for head, stand_in in lost.items():
        if stand_in is None:
            continue
        del left[stand_in]
        left.update((at, replace(copies[at], head=stand_in)) for at in members[head] if at > stand_in)
        if head in trimmed:
            cut[stand_in] = _transplanted(trimmed[head], messages[stand_in])
    return left, cut


def _transplanted(trimmed: Trimmed, message: Message) -> Trimmed:
    return Trimmed(replace(trimmed.trim, digest=message.digest), trimmed.text)


class Restored(msgspec.Struct, frozen=True, gc=False):
    """For windows that begin at `start` to `stop` (half open), a copy costs `tokens` more than its pointer."""

    start: int
    stop: int
    tokens: int


def restorations(
    copies: Mapping[int, Copy], pinned: frozenset[int], full: Callable[[int], int], messages: int
) -> Iterator[Restored]:
    """Which copies stand in for lost heads, by where the window begins; `full(at)` is what that costs at `at`."""
    for head, members in families(copies).items():
        before = head
        for at in members:
            if before in pinned:
                break
            yield Restored(before + 1, messages + 1 if at in pinned else at + 1, full(at))
            before = at
