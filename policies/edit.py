"""What policies return: edits as data, and what a conversation is after them.

Rule: indices always refer to the original conversation, and no edit can add a message, change a call or touch anything
but a text; so reordering, new markers and broken arguments cannot even be said.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import xxhash

from policies.conversation import Conversation, Message


@dataclass(frozen=True, slots=True)
class ReplaceText:
    """Send `text` in place of the text of message `at`, whose digest is `digest`."""

    policy: str
    at: int
    digest: bytes
    text: str
    removed_tokens: int


@dataclass(frozen=True, slots=True)
class DropMessages:
    """Leave out the messages `start` to `stop` (half open); `digest` is that of message `stop`, the first one kept."""

    policy: str
    start: int
    stop: int
    digest: bytes
    removed_tokens: int


Edit = ReplaceText | DropMessages


def apply(conversation: Conversation, edits: Sequence[Edit]) -> Conversation:
    """The conversation as it is sent; without edits the very same object."""
    if not edits:
        return conversation
    texts = {edit.at: edit for edit in edits if isinstance(edit, ReplaceText)}
    gone = {at for edit in edits if isinstance(edit, DropMessages) for at in range(edit.start, edit.stop)}
    kept = (
        _replaced(message, texts[at]) if at in texts else message
        for at, message in enumerate(conversation.messages)
        if at not in gone
    )
    return Conversation(tuple(kept), conversation.overhead_tokens)


def _replaced(message: Message, edit: ReplaceText) -> Message:
    digest = xxhash.xxh3_128_digest(message.digest + edit.text.encode("utf-8", "surrogatepass"))
    return replace(message, digest=digest, text=edit.text, tokens=message.tokens - edit.removed_tokens)
