"""Where a window may begin and what falls out before it.

Rule: what is kept is a conversation that any chat template still takes. Instructions stay, the task stays with its
answer (so user and assistant still alternate), groups of calls stay or go whole, reasoning goes by whole turns, and
nothing that the model has not answered yet is touched.
"""

from collections.abc import Iterable
from itertools import accumulate

from policies.conversation import INSTRUCTIONS, Conversation


def pinned(conversation: Conversation) -> frozenset[int]:
    """Indices that no window drops: instructions, what comes before the task, the task, and its answer.

    Of the first turn its closing answer is kept, and the tool traffic between goes; where there is no such answer, or
    keeping it would tear the turn's reasoning apart, the whole turn is kept.
    """
    turns = conversation.turns()
    kept = {at for at, message in enumerate(conversation.messages) if message.role in INSTRUCTIONS}
    if turns:
        kept.update(range(turns[0].start), _opener(conversation, turns[0]))
    return frozenset(kept)


def _opener(conversation: Conversation, turn: range) -> set[int]:
    messages = conversation.messages
    spoken = [at for at in turn if messages[at].role not in INSTRUCTIONS]
    task = {at for at in spoken if messages[at].role == "user"}
    closing = messages[spoken[-1]]
    if closing.role != "assistant" or closing.calls or is_bound(conversation, turn):
        return set(turn)
    return task | {spoken[-1]}


def is_bound(conversation: Conversation, turn: range) -> bool:
    """Whether a turn is held together by its reasoning: that of its closing answer and of messages before."""
    messages = conversation.messages
    thinking = [at for at in turn if messages[at].reasoning]
    last = max(at for at in turn if messages[at].role not in INSTRUCTIONS)
    return len(thinking) > 1 and thinking[-1] == last and not messages[last].calls


def cuts(conversation: Conversation, pinned: frozenset[int]) -> tuple[int, ...]:
    """Where a window may begin, ascending: starts of turns that part no group and leave nothing unanswered."""
    messages = conversation.messages
    answered = max((at for at, message in enumerate(messages) if message.role == "assistant"), default=-1) + 1
    ceiling = answered
    parted = [0] * (len(messages) + 1)
    for group in conversation.groups():
        loose = [at for at in group if at not in pinned]
        if 0 < len(loose) < len(group):
            ceiling = min(ceiling, loose[0])
        elif loose and loose[0] < loose[-1]:
            parted[loose[0] + 1] += 1
            parted[loose[-1] + 1] -= 1
    inside = list(accumulate(parted))
    starts = (turn.start for turn in conversation.turns()[1:])
    return tuple(start for start in starts if start <= ceiling and not inside[start])


def dropped(cut: int, pinned: frozenset[int]) -> tuple[range, ...]:
    """What a window that begins at `cut` leaves out, as ranges in order."""
    return runs(at for at in range(cut) if at not in pinned)


def runs(indices: Iterable[int]) -> tuple[range, ...]:
    """Ascending indices as ranges, as few as there can be."""
    ranges: list[range] = []
    for at in indices:
        if ranges and ranges[-1].stop == at:
            ranges[-1] = range(ranges[-1].start, at + 1)
        else:
            ranges.append(range(at, at + 1))
    return tuple(ranges)
