"""What the handles of a plan stand for: outputs that were shortened, and messages that are left out, part by part.

Rule: a text is made only where it must be written; most turns show handles of what the store has.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from policies.conversation import Conversation
from policies.edit import AddNote, AddSummary, Edit, ReplaceText
from policies.keeping import TURNS_PREFIX, Keeping
from policies.left_out import parts, transcript

Makers = Mapping[str, Callable[[], str]]
"""Handles, each with what makes the text kept under it."""


@dataclass(frozen=True, slots=True)
class Shown:
    """`texts`: every handle with what makes its text. `parts`: those that one of messages is redeemed by."""

    texts: dict[str, Callable[[], str]] = field(default_factory=dict)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def redeemable(self, held: frozenset[str]) -> frozenset[str]:
        """Those of the handles `held` that give back all they stand for."""
        lacking = {handle for handle, parts in self.parts.items() if not held.issuperset(parts)}
        return held - lacking if lacking else held


def shown_by(conversation: Conversation, edits: Sequence[Edit], keeping: Keeping) -> Shown:
    """What the edits show."""
    shown = Shown()
    for edit in edits:
        if isinstance(edit, ReplaceText) and edit.handle:
            shown.texts[edit.handle] = partial(_text, conversation, edit.at)
        elif isinstance(edit, AddNote | AddSummary) and edit.handle:
            _messages(shown, conversation, edit, keeping)
    return shown


def listed(handles: Sequence[str]) -> str:
    """What is kept under the handle of messages: the handles of their parts."""
    return "\n".join(handles)


def parts_of(handle: str, text: str) -> Sequence[str]:
    """The handles of the parts of what `handle` stands for; empty for what has none."""
    return text.split("\n") if handle.startswith(TURNS_PREFIX) else ()


def texts_of(shown: Shown) -> Mapping[str, str]:
    """Every handle with its text."""
    return {handle: make() for handle, make in shown.texts.items()}


def _messages(shown: Shown, conversation: Conversation, edit: AddNote | AddSummary, keeping: Keeping) -> None:
    handles = []
    for part in parts([conversation.messages[at] for at in edit.messages]):
        handle = keeping.part_of_messages([message.digest for message in part])
        shown.texts[handle] = partial(transcript, part)
        handles.append(handle)
    shown.parts[edit.handle] = tuple(handles)
    shown.texts[edit.handle] = partial(listed, handles)


def _text(conversation: Conversation, at: int) -> str:
    return conversation.messages[at].text
