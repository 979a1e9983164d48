"""Messages that are left out and kept elsewhere: the note that says so, and what is kept of them.

Rule: what is kept is made of the messages alone and cut into parts of a fixed number of them, so when a window moves on
the parts kept before stay as they are. The note is short, and the same for as long as the same messages are left out.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from policies.conversation import Message

PART_MESSAGES: Final = 32
MAX_CHARACTERS: Final = 16 * 1024 * 1024
"""More than this is left out without a handle: it would push out a whole tenant's originals."""


class Note(msgspec.Struct, frozen=True, gc=False):
    """Behind the text of message `at`, a user's, `text` says that `messages` are kept under `handle`."""

    at: int
    handle: str
    messages: tuple[int, ...]
    text: str
    tokens: int


def told(messages: int, handle: str) -> str:
    """The note's text; it names no tokens, for they are told by a measure that is learned."""
    return f"\n\n[kvgate: {messages} earlier messages are left out here, kept as {handle}]"


def may_be_kept(messages: Sequence[Message]) -> bool:
    """Whether so much can be kept."""
    return sum(len(message.text) for message in messages) <= MAX_CHARACTERS


def parts(messages: Sequence[Message]) -> Iterator[Sequence[Message]]:
    """The parts in which they are kept, in order."""
    for start in range(0, len(messages), PART_MESSAGES):
        yield messages[start : start + PART_MESSAGES]


def transcript(messages: Sequence[Message]) -> str:
    """Messages as they can be read again: who, what was called, and each text to the character."""
    return "\n".join(f"{_head(message)}\n{message.text}" for message in messages)


def _head(message: Message) -> str:
    who = f"{message.role} {message.name}" if message.role == "tool" and message.name else message.role
    media = f", with {message.media} media that are not kept" if message.media else ""
    calls = "".join(f"\n[calls {call.name} {call.arguments}]" for call in message.calls)
    return f"[{who}{media}]{calls}"
