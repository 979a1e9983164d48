"""What all formats of the OpenAI API share: the error object, alone and inside a stream, and bodies without messages.

Rule: errors are built by a JSON encoder, never by string concatenation: an engine's text cannot forge a frame.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

import msgspec

from budgets.usage import Usage
from gateway.call import Call
from gateway.dialects.base import ReplyReader
from gateway.errors import ErrorReply
from policies.conversation import Message
from policies.edit import Edit


class OpenAIDialect:
    """A format without messages: nothing to edit, so the body leaves as it came."""

    chunk_object = "text_completion"
    empty_choice: Mapping[str, object] = MappingProxyType({"text": "", "logprobs": None})

    def messages(self, call: Call, digests: Sequence[bytes]) -> tuple[Message, ...]:
        return ()

    def countable(self, message: Message) -> str:
        return message.text

    def render(self, call: Call, edits: Sequence[Edit]) -> bytes:
        return call.body

    def reader(self, call: Call) -> ReplyReader | None:
        return None

    def continued(self, call: Call, earlier: Sequence[bytes]) -> Call:
        return call

    def error(self, reply: ErrorReply) -> bytes:
        """`{"error": {"message", "type", "param", "code", ...}}`; what says more (limit, used) stands inside it."""
        body = {"message": reply.message, "type": reply.type, "param": reply.param, "code": reply.code}
        return msgspec.json.encode({"error": body | dict(reply.extra)})

    def cut_short(self, call: Call, head: Mapping[str, object], choices: Sequence[int], usage: Usage | None) -> bytes:
        """A last chunk with `finish_reason: length`, a usage chunk if it is told, and `[DONE]`."""
        head = {**head, "object": self.chunk_object, "model": call.model}
        ends = [{"index": choice, **self.empty_choice, "finish_reason": "length"} for choice in choices]
        frames = [head | {"choices": ends}]
        if usage is not None:
            told = {"prompt_tokens": usage.prompt_tokens, "completion_tokens": usage.decode_tokens}
            frames.append(head | {"choices": [], "usage": told | {"total_tokens": usage.total_tokens}})
        return b"".join([b"data: %b\n\n" % msgspec.json.encode(frame) for frame in frames]) + b"data: [DONE]\n\n"

    def error_frame(self, reply: ErrorReply) -> bytes:
        """One `data:` frame with a top-level `error`, on which the SDKs raise; no `[DONE]` follows."""
        return b"data: " + self.error(reply) + b"\n\n"
