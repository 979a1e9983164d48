"""Conversations for the tests of the policies, with token counts that can be done in the head.

A token is four characters, a message costs four more; every digest is that of the fields and the message's place.
"""

from collections.abc import Sequence

import xxhash
from msgspec.structs import replace

from policies.conversation import Conversation, Message, Role, ToolCall

TEMPLATE_TOKENS = 4


def count(text: str) -> int:
    return -(-len(text) // 4)


class Counter:
    """`count`, and how often and on how many characters it was called."""

    def __init__(self) -> None:
        self.calls = 0
        self.characters = 0

    def __call__(self, text: str) -> int:
        self.calls += 1
        self.characters += len(text)
        return count(text)


def message(
    role: Role,
    text: str = "",
    *,
    calls: Sequence[str] = (),
    answers: str | None = None,
    name: str | None = None,
    media: int = 0,
    reasoning: bool = False,
    cache_control: int = 0,
    arguments: str = "{}",
    thinking: str = "",
) -> Message:
    tokens = count(text) + TEMPLATE_TOKENS + 10 * len(calls) + 500 * media
    tokens += count(thinking) + (count(arguments) if len(arguments) > 2 else 0) * len(calls)
    made = tuple(ToolCall(call, "look", arguments) for call in calls)
    reasoning = reasoning or bool(thinking)
    return Message(role, b"", tokens, text, made, answers, name, media, reasoning, cache_control, thinking)


def conversation(*messages: Message, overhead_tokens: int = 0) -> Conversation:
    """A conversation whose every message has a digest of its own."""
    named = (
        replace(message, digest=xxhash.xxh3_128_digest(f"{at} {message!r}".encode("utf-8", "surrogatepass")))
        for at, message in enumerate(messages)
    )
    return Conversation(tuple(named), overhead_tokens)


def system(text: str = "Be brief.") -> Message:
    return message("system", text)


def user(text: str = "Go on.", *, media: int = 0) -> Message:
    return message("user", text, media=media)


def says(text: str = "Done.", *, reasoning: bool = False, thinking: str = "") -> Message:
    return message("assistant", text, reasoning=reasoning, thinking=thinking)


def calling(*calls: str, reasoning: bool = False, arguments: str = "{}", thinking: str = "") -> Message:
    return message("assistant", calls=calls, reasoning=reasoning, arguments=arguments, thinking=thinking)


def result(call: str, text: str = "ok", *, name: str | None = "look") -> Message:
    return message("tool", text, answers=call, name=name)


def turn(number: int, result_tokens: int) -> tuple[Message, ...]:
    """A user message, a call, a result of so many tokens that no other turn has, an answer."""
    call, output = f"call_{number}", f"{number:04}".ljust(4 * result_tokens, "x")
    asked = calling(call, arguments=f'{{"step": {number}}}')
    return user(f"Step {number}?"), asked, result(call, output), says(f"Step {number} done.")
