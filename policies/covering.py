"""Which messages a summary may stand for, and what is left of them.

Rule: what is left is a conversation that any chat template still takes: instructions, the task with the summary behind
its text, then an assistant's message. So user and assistant still alternate, whatever was left out. No group of calls
is parted, reasoning goes by whole turns, and a turn that is pinned or not answered is never covered.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate, pairwise

import msgspec

from policies import window
from policies.conversation import INSTRUCTIONS, Conversation, Message


class Cover(msgspec.Struct, frozen=True, gc=False):
    """Messages before `stop`, of which only `bridge` stays; the summary goes behind message `at`.

    At the start of a turn the closing answer of the turn before is the bridge; inside the first turn, where an
    assistant's message begins what stays, none is needed. `cleared` are messages that stay without their reasoning,
    because the rest of their turn's goes.
    """

    at: int
    stop: int
    bridge: int | None = None
    cleared: tuple[int, ...] = ()


def head(conversation: Conversation) -> frozenset[int]:
    """What a summary never covers: instructions, what stands before the task, the task."""
    kept = set(conversation.instructions)
    if turns := conversation.turns():
        kept.update(range(turns[0].start), _task(conversation, turns[0]))
    return frozenset(kept)


def task(conversation: Conversation) -> int | None:
    """The last message of what was asked first; None where nothing was."""
    turns = conversation.turns()
    return max(_task(conversation, turns[0])) if turns else None


def covers(conversation: Conversation, untouched: frozenset[int], mark: str) -> tuple[Cover, ...]:
    """What can be covered, ascending; nothing where the task is pinned or holds a summary (its `mark`) already."""
    turns = conversation.turns()
    if not turns:
        return ()
    at = max(_task(conversation, turns[0]))
    if at in untouched or mark in conversation.messages[at].text:
        return ()
    whole = _whole(conversation, turns[0].start)
    found: list[Cover] = []
    if untouched.isdisjoint(turns[0]):
        found.extend(cover for cover in _inside(conversation, at) if whole[cover.stop])
    for turn, following in pairwise(turns):
        if not untouched.isdisjoint(turn):
            break
        if whole[following.start] and (cover := _at_turn(conversation, at, turn, following.start)) is not None:
            found.append(cover)
    return tuple(found)


def cover_at(conversation: Conversation, untouched: frozenset[int], mark: str, stop: int) -> Cover | None:
    """The one of `covers` that ends at `stop`, without looking for the others."""
    turns, starts = conversation.turns(), [turn.start for turn in conversation.turns()]
    if not turns or stop <= starts[0] or not _is_whole(conversation, starts[0], stop):
        return None
    at = max(_task(conversation, turns[0]))
    if at in untouched or mark in conversation.messages[at].text:
        return None
    if stop < turns[0].stop:
        found = _inside(conversation, at) if untouched.isdisjoint(turns[0]) else iter(())
        return next((cover for cover in found if cover.stop == stop), None)
    number = bisect_left(starts, stop)
    if number == len(starts) or starts[number] != stop or any(starts[0] <= kept < stop for kept in untouched):
        return None
    return _at_turn(conversation, at, turns[number - 1], stop)


def _at_turn(conversation: Conversation, at: int, turn: range, stop: int) -> Cover | None:
    """The cover that ends where the turn behind `turn` begins."""
    messages, bridge = conversation.messages, turn[-1]
    while messages[bridge].role in INSTRUCTIONS:
        bridge -= 1
    if not _closes(messages[bridge]) or bridge <= at + 1:
        return None
    return Cover(at, stop, bridge, (bridge,) if window.is_bound(conversation, turn) else ())


def _is_whole(conversation: Conversation, begin: int, stop: int) -> bool:
    """`_whole` of one place."""
    if stop > conversation.answered:
        return False
    for group in conversation.groups():
        if group[0] < begin <= group[-1]:
            if next(at for at in group if at >= begin) < stop:
                return False
        elif group[0] < stop <= group[-1]:
            return False
    return True


def _inside(conversation: Conversation, at: int) -> Iterator[Cover]:
    """Before assistant messages of the first turn; while that is under way, as long as no reasoning would go."""
    messages, turns = conversation.messages, conversation.turns()
    thinking = [place for place in turns[0] if messages[place].reasoning]
    begun = False
    for place in range(at + 1, turns[0].stop):
        gone = bool(thinking) and thinking[0] < place
        if gone and len(turns) == 1:
            return
        if messages[place].role == "assistant" and begun:
            yield Cover(at, place, cleared=tuple(kept for kept in thinking if kept >= place) if gone else ())
        begun = begun or messages[place].role not in INSTRUCTIONS


def _whole(conversation: Conversation, begin: int) -> Sequence[bool]:
    """Of each place, whether everything before it is answered and no group stands on both sides."""
    messages = conversation.messages
    answered = conversation.answered
    parted = [0] * (len(messages) + 1)
    for group in conversation.groups():
        if group[0] < begin <= group[-1]:  # called before the task, where nothing goes: what answers it must stay
            parted[next(at for at in group if at >= begin) + 1] += 1
        else:
            parted[group[0] + 1] += 1
            parted[group[-1] + 1] -= 1
    return [at <= answered and not groups for at, groups in enumerate(accumulate(parted[:-1]))]


def _task(conversation: Conversation, turn: range) -> list[int]:
    return [at for at in turn if conversation.messages[at].role == "user"]


def _closes(message: Message) -> bool:
    return message.role == "assistant" and not message.calls
