"""OpenAI chat messages of the usual form, read in one pass: a text, calls, an answer, and no field that is seldom seen.

Rule: what is read here is read as `openai_messages` reads it, for an eighth of the time; whatever is not of the usual
form, to the last byte, is left to it.
"""

from typing import Annotated, Final

import msgspec

from policies.conversation import Message, Role, ToolCall


class _Function(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    name: str
    arguments: str


class _Called(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    id: Annotated[str, msgspec.Meta(min_length=1)]
    function: _Function
    type: str = ""


class Plain(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """The fields that SDKs send, those of which nothing is read only as they send them when they are empty."""

    role: Role
    content: str | None = None
    tool_calls: tuple[_Called, ...] | None = None
    tool_call_id: str | None = None
    name: str | None = None
    cache_control: dict[str, str] | msgspec.UnsetType | None = msgspec.UNSET
    reasoning: str | None = None
    reasoning_content: str | None = None
    thinking_blocks: None = None
    refusal: None = None
    audio: None = None
    annotations: tuple[()] | None = None
    function_call: None = None

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """The calls it makes."""
        if not self.tool_calls:
            return ()
        return tuple([ToolCall(call.id, call.function.name, call.function.arguments) for call in self.tool_calls])

    def message(self, digest: bytes, calls: tuple[ToolCall, ...], answered: str | None) -> Message:
        """The neutral form; `answered` is the name of the tool whose call it answers, if it does."""
        thought = self.reasoning or self.reasoning_content or ""
        if self.reasoning and self.reasoning_content:
            thought = f"{self.reasoning}\n{self.reasoning_content}"
        return Message(
            self.role,
            digest,
            0,
            self.content or "",
            calls,
            self.tool_call_id if self.role == "tool" else None,
            answered or self.name,
            0,
            bool(thought),
            int(self.cache_control is not msgspec.UNSET),
            thought,
        )


_PLAIN: Final = msgspec.json.Decoder(Plain)
UNREAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `plain` raises; `ValidationError` is a `DecodeError`."""

plain: Final = _PLAIN.decode
