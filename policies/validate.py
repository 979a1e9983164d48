"""The validator: used by the tests and, in shadow, in production.

Rule: every edit fits the conversation it was made for, and all invariants hold after it. Linear in the messages.
"""

from collections.abc import Iterator, Sequence

import msgspec

from policies.conversation import Conversation, Message
from policies.edit import (
    AddNote,
    AddSummary,
    ClearReasoning,
    DropMessages,
    Edit,
    InsertAnswer,
    ReplaceArguments,
    ReplaceText,
)
from policies.invariants import RULES, edited
from policies.trimmed_text import whole

__all__ = ["RULES", "Violation", "violations"]


class Violation(msgspec.Struct, frozen=True, gc=False):
    """Rule `rule` is broken at message `at` of the original."""

    rule: str
    at: int


def violations(before: Conversation, edits: Sequence[Edit]) -> tuple[Violation, ...]:
    """Every invariant that `edits` would break on `before`; edits that do not even fit it are all that is told then."""
    misfits = tuple(_misfits(before, edits))
    if misfits:
        return misfits
    after = edited(before, edits)
    return tuple(Violation(rule, at) for rule, check in RULES.items() for at in check(after))


def _misfits(before: Conversation, edits: Sequence[Edit]) -> Iterator[Violation]:
    """Edits out of range, out of order, over one another, for another message, or that save nothing."""
    messages, free, last = before.messages, 0, (-1, -1, -1)
    for edit in edits:
        start, stop = (edit.start, edit.stop) if isinstance(edit, DropMessages) else (edit.at, edit.at + 1)
        named = stop if isinstance(edit, DropMessages) else start
        place = _place(edit)
        if not (free <= start < stop <= len(messages) and named < len(messages) and _follows(edit, place, last)):
            yield Violation("edits lie in order within the conversation", start)
            return
        if messages[named].digest != edit.digest:
            yield Violation("an edit names the message it was made for", start)
        if not _saves(edit, messages[start], sum(message.tokens for message in messages[start:stop])):
            yield Violation("an edit makes the prompt shorter", start)
        free, last = (stop if isinstance(edit, DropMessages) else start), place


def _place(edit: Edit) -> tuple[int, int, int]:
    """Where an edit stands among the edits: by message, of one message each kind once and each of its calls once."""
    match edit:
        case DropMessages():
            return edit.start, 0, 0
        case ReplaceText():
            return edit.at, 0, 0
        case ClearReasoning():
            return edit.at, 1, 0
        case ReplaceArguments():
            return edit.at, 2, edit.call
        case InsertAnswer():
            return edit.at, 3, 0
        case AddSummary():
            return edit.at, 4, 0
        case AddNote():
            return edit.at, 5, 0


def _follows(edit: Edit, place: tuple[int, int, int], last: tuple[int, int, int]) -> bool:
    return last < place or (isinstance(edit, InsertAnswer) and last == place)


def _saves(edit: Edit, message: Message, tokens: int) -> bool:
    """Whether the prompt gets shorter. Repairs may make it longer; a summary or note has its own rule."""
    match edit:
        case InsertAnswer() | AddSummary() | AddNote():
            return edit.removed_tokens < 0
        case ReplaceArguments():
            return edit.removed_tokens <= 0
        case ReplaceText() if edit.text == whole(message.text):
            return edit.removed_tokens == 0
        case ClearReasoning():
            return 0 <= edit.removed_tokens <= tokens
        case _:
            return 0 < edit.removed_tokens <= tokens
