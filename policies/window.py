"""Where a window may begin and what falls out before it.

Rule: what is kept is a conversation that any chat template still takes. Instructions stay, the task stays with its
answer (so user and assistant still alternate), groups of calls stay or go whole, reasoning goes by whole turns, and
nothing that the model has not answered yet is touched.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from policies.conversation import INSTRUCTIONS, Conversation


def pinned(conversation: Conversation) -> frozenset[int]:
    """Indices that no window drops: instructions, what comes before the task, the task, and its answer.

    Of the first turn its closing answer is kept, and the tool traffic between goes. Where there is no such answer its
    last step is kept, and where the answer would tear the turn's reasoning apart all from the first thought on.
    """
    turns = conversation.turns()
    kept = set(conversation.instructions)
    if turns:
        kept.update(range(turns[0].start), _opener(conversation, turns[0]))
    return frozenset(kept)


def _opener(conversation: Conversation, turn: range) -> set[int]:
    messages = conversation.messages
    task = {at for at in turn if messages[at].role == "user"}
    if not is_kept_by_reasoning(conversation, turn) and is_closed(conversation, turn):
        return task | {_last(conversation, turn)}
    thoughts = (at for at in turn if messages[at].reasoning)
    last_step = (at for at in reversed(turn) if messages[at].role == "assistant" and at < conversation.asked)
    whole_from = min(next(thoughts, turn.stop), next(last_step, turn.start))
    return task.union(range(whole_from, turn.stop))


def is_kept_by_reasoning(conversation: Conversation, turn: range) -> bool:
    """Whether more of the first turn is kept because it has reasoning; then that must stay, or less would be kept."""
    thinks = any(conversation.messages[at].reasoning for at in turn)
    return thinks and (is_bound(conversation, turn) or not is_closed(conversation, turn))


def is_closed(conversation: Conversation, turn: range) -> bool:
    """Whether a turn ends with an answer that calls no tools; results of no call behind it do not count."""
    last = _last(conversation, turn)
    closing = conversation.messages[last]
    return closing.role == "assistant" and not closing.calls and last < conversation.asked


def is_bound(conversation: Conversation, turn: range) -> bool:
    """Whether a turn is held together by its reasoning: that of its closing answer and of messages before."""
    messages = conversation.messages
    thinking = [at for at in turn if messages[at].reasoning]
    last = _last(conversation, turn)
    return len(thinking) > 1 and thinking[-1] == last and not messages[last].calls


def _last(conversation: Conversation, turn: range) -> int:
    """The last message of a turn, instructions and results of no call aside."""
    for at in reversed(turn):
        role = conversation.messages[at].role
        if role not in INSTRUCTIONS and (role != "tool" or any(at in group for group in conversation.groups())):
            return at
    return turn.start


def cuts(conversation: Conversation, borders: Sequence[int]) -> tuple[int, ...]:
    """Which of the `borders` a window may move to: the starts of turns, and the steps of an agent still at work.

    An agent works in one turn however long it takes. A turn that is over goes as a whole.
    """
    turns, messages, asked = conversation.turns(), conversation.messages, conversation.asked
    under_way = turns[-1].start if turns and messages[asked - 1].role == "tool" else len(messages)
    starts = {turn.start for turn in turns}
    return tuple(border for border in borders if border in starts or border > under_way)


def borders(conversation: Conversation, pinned: frozenset[int]) -> tuple[int, ...]:
    """Where a window may begin, ascending: the starts of turns and, inside them, of the steps of an agent.

    They part no group and leave nothing unanswered. A step follows what its turn was asked, which stays, as well as it
    followed the step before.
    """
    messages = conversation.messages
    ceiling = conversation.answered
    parted = [0] * (len(messages) + 1)
    for group in conversation.groups():
        loose = [at for at in group if at not in pinned]
        if 0 < len(loose) < len(group):
            ceiling = min(ceiling, loose[0])
        elif loose and loose[0] < loose[-1]:
            parted[loose[0] + 1] += 1
            parted[loose[-1] + 1] -= 1
    inside = list(accumulate(parted))
    turns = conversation.turns()
    starts = [start for turn in turns for start in (turn.start, *_steps(conversation, turn))][1:]
    return tuple(start for start in starts if start <= ceiling and not inside[start])


def opening(conversation: Conversation, cut: int) -> frozenset[int]:
    """What a turn was asked that a window which begins inside it leaves standing before it."""
    turn = next((turn for turn in conversation.turns() if turn.start < cut < turn.stop), range(0))
    return frozenset(at for at in turn if conversation.messages[at].role == "user" and at < cut)


def _steps(conversation: Conversation, turn: range) -> list[int]:
    """Where a step of the turn begins that has others before it, and no thought: reasoning goes by whole turns."""
    starts: list[int] = []
    for at in turn:
        if conversation.messages[at].role == "assistant":
            starts.append(at)
        if conversation.messages[at].reasoning:
            break
    return starts[1:]


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
