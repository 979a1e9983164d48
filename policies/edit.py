"""What policies return: edits as data, and what a conversation is after them.

Rule: indices always refer to the original conversation, and an edit says one thing. Reordering, new markers and changed
instructions cannot even be said; a message is only ever added to answer a call that nobody answered.
"""

from collections.abc import Iterable, Sequence

import msgspec
import xxhash
from msgspec.structs import replace

from policies.conversation import Conversation, Message, ToolCall


class ReplaceText(msgspec.Struct, frozen=True, gc=False):
    """Send `text` in place of the text of message `at`, whose digest is `digest`.

    `handle` is what `text` says the original is kept under; empty where it says nothing of the kind.
    """

    policy: str
    at: int
    digest: bytes
    text: str
    removed_tokens: int
    handle: str = ""


class DropMessages(msgspec.Struct, frozen=True, gc=False):
    """Leave out the messages `start` to `stop` (half open); `digest` is that of message `stop`, the first one kept."""

    policy: str
    start: int
    stop: int
    digest: bytes
    removed_tokens: int


class ClearReasoning(msgspec.Struct, frozen=True, gc=False):
    """Send message `at` without its reasoning."""

    policy: str
    at: int
    digest: bytes
    removed_tokens: int


class ReplaceArguments(msgspec.Struct, frozen=True, gc=False):
    """Send `arguments`, a JSON object, as those of call number `call` of message `at`; may cost tokens (below 0)."""

    policy: str
    at: int
    call: int
    digest: bytes
    arguments: str
    removed_tokens: int


class InsertAnswer(msgspec.Struct, frozen=True, gc=False):
    """Behind message `at` a tool message that answers the call `call_id`; what it costs is `removed_tokens` below 0."""

    policy: str
    at: int
    digest: bytes
    call_id: str
    text: str
    removed_tokens: int


class AddSummary(msgspec.Struct, frozen=True, gc=False):
    """Behind the text of message `at`, a user's: `text` for messages left out; it costs `removed_tokens` below 0.

    `handle` is what `text` says that `messages` are kept under; empty where it says nothing of the kind.
    """

    policy: str
    at: int
    digest: bytes
    text: str
    removed_tokens: int
    handle: str = ""
    messages: tuple[int, ...] = ()


class AddNote(msgspec.Struct, frozen=True, gc=False):
    """Behind the text of message `at`, a user's: `text` says that `messages`, left out, are kept under `handle`."""

    policy: str
    at: int
    digest: bytes
    text: str
    removed_tokens: int
    handle: str
    messages: tuple[int, ...]


Change = ReplaceText | ClearReasoning | ReplaceArguments | AddSummary | AddNote
"""What changes one message where it stands."""

Edit = Change | DropMessages | InsertAnswer


def apply(conversation: Conversation, edits: Sequence[Edit]) -> Conversation:
    """The conversation as it is sent; without edits the very same object."""
    if not edits:
        return conversation
    gone = {at for edit in edits if isinstance(edit, DropMessages) for at in range(edit.start, edit.stop)}
    edited: dict[int, list[Change | InsertAnswer]] = {}
    for edit in edits:
        if not isinstance(edit, DropMessages):
            edited.setdefault(edit.at, []).append(edit)
    kept: list[Message] = []
    for at, message in enumerate(conversation.messages):
        if at not in gone:
            kept.extend(_sent(message, edited.get(at, ())))
    return Conversation(tuple(kept), conversation.overhead_tokens)


def _sent(message: Message, edits: Iterable[Change | InsertAnswer]) -> list[Message]:
    """The message, changed, and the answers that follow it."""
    answers: list[Message] = []
    for edit in edits:
        if isinstance(edit, InsertAnswer):
            answers.append(_answer(edit))
        else:
            message = _changed(message, edit)
    return [message, *answers]


def _changed(message: Message, edit: Change) -> Message:
    tokens = message.tokens - edit.removed_tokens
    match edit:
        case ReplaceText():
            return replace(message, digest=_digest(message.digest, edit.text), text=edit.text, tokens=tokens)
        case ClearReasoning():
            digest = _digest(message.digest, "reasoning cleared")
            return replace(message, digest=digest, reasoning=False, reasoning_text="", tokens=tokens)
        case ReplaceArguments():
            digest = _digest(message.digest, f"{edit.call} {edit.arguments}")
            return replace(message, digest=digest, calls=_calls(message, edit), tokens=tokens)
        case AddSummary():
            digest = _digest(message.digest, f"summary {edit.text}")
            return replace(message, digest=digest, text=message.text + edit.text, tokens=tokens)
        case AddNote():
            digest = _digest(message.digest, f"note {edit.text}")
            return replace(message, digest=digest, text=message.text + edit.text, tokens=tokens)


def _calls(message: Message, edit: ReplaceArguments) -> tuple[ToolCall, ...]:
    return tuple(
        replace(call, arguments=edit.arguments) if number == edit.call else call
        for number, call in enumerate(message.calls)
    )


def _answer(edit: InsertAnswer) -> Message:
    digest = _digest(edit.digest, f"{edit.call_id} {edit.text}")
    return Message("tool", digest, -edit.removed_tokens, edit.text, answers=edit.call_id)


def _digest(digest: bytes, text: str) -> bytes:
    return xxhash.xxh3_128_digest(digest + text.encode("utf-8", "surrogatepass"))
