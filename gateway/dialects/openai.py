"""What all formats of the OpenAI API share: the error object, alone and inside a stream, and bodies without messages.

Rule: errors are built by a JSON encoder, never by string concatenation: an engine's text cannot forge a frame.
"""

from collections.abc import Sequence

import msgspec

from gateway.call import Call
from gateway.errors import ErrorReply
from policies.conversation import Message
from policies.edit import Edit


class OpenAIDialect:
    """A format without messages: nothing to edit, so the body leaves as it came."""

    def messages(self, call: Call, digests: Sequence[bytes]) -> tuple[Message, ...]:
        return ()

    def countable(self, message: Message) -> str:
        return message.text

    def render(self, call: Call, edits: Sequence[Edit]) -> bytes:
        return call.body

    def error(self, reply: ErrorReply) -> bytes:
        """`{"error": {"message", "type", "param", "code", ...}}`; what says more (limit, used) stands inside it."""
        body = {"message": reply.message, "type": reply.type, "param": reply.param, "code": reply.code}
        return msgspec.json.encode({"error": body | dict(reply.extra)})

    def error_frame(self, reply: ErrorReply) -> bytes:
        """One `data:` frame with a top-level `error`, on which the SDKs raise; no `[DONE]` follows."""
        return b"data: " + self.error(reply) + b"\n\n"
