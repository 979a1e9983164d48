"""What every wire format gives: bytes to `Call`, edits to bytes, faults to the format's own shapes.

Rule: a dialect decides nothing. It reads, and it writes what it is told.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from budgets.usage import Usage
from gateway.call import Call
from gateway.errors import ErrorReply
from policies.conversation import Message
from policies.edit import Edit

OWNED: Final = (
    "model",
    "stream_options",
    "max_tokens",
    "max_completion_tokens",
    "cache_salt",
    "priority",
    "request_id",
    "kv_transfer_params",
    "ec_transfer_params",
    "chat_template",
    "mm_processor_kwargs",
    "bootstrap_host",
    "bootstrap_port",
    "bootstrap_room",
    "rid",
    "extra_key",
    "session_params",
    "routed_dp_rank",
    "data_parallel_rank",
)
"""The closed table of top-level fields that the gateway sets, changes or removes; all others pass untouched."""

LIMIT_FIELDS: Final = ("max_completion_tokens", "max_tokens")
"""The client's limit on generated tokens; the first counts before the second."""

FORBIDDEN: Final = OWNED[4:]
"""Owned fields whose client copy never reaches an engine: they steer its cache, its scheduler or its templates."""


class ReplyReader(Protocol):
    """Reads the reply to a call, as the client gets it, as the message that it is in the next call."""

    def feed(self, data: bytes) -> None: ...
    def message(self) -> bytes | None:
        """None where the reply holds no message, or not to its end."""
        ...


class Dialect(Protocol):
    """One wire format."""

    engine_path: bytes
    """Where an engine serves it."""

    def parse(self, body: bytes) -> Call:
        """Raises `InvalidRequest`, naming the field."""
        ...

    def messages(self, call: Call, digests: Sequence[bytes]) -> tuple[Message, ...]:
        """The messages in neutral form, `tokens` still 0; an unreadable message is an opaque user message."""
        ...

    def countable(self, message: Message) -> str:
        """The text of a message that the engine will tokenize."""
        ...

    def render(self, call: Call, edits: Sequence[Edit]) -> bytes:
        """The body with the edits applied; without edits the very bytes received."""
        ...

    def reader(self, call: Call) -> ReplyReader | None:
        """What reads the reply to a call for a history; None where the format has no conversation."""
        ...

    def continued(self, call: Call, earlier: Sequence[bytes]) -> Call:
        """The call with these messages before its own, as if the client had sent them all."""
        ...

    def error(self, reply: ErrorReply) -> bytes:
        """The body of an error answer."""
        ...

    def cut_short(self, call: Call, head: Mapping[str, object], choices: Sequence[int], usage: Usage | None) -> bytes:
        """The end of a stream whose `choices` had not ended: as long as they may be, and the usage if it is told.

        `head` are fields of every frame: `id`, `created`, and a note about why it ends.
        """
        ...

    def error_frame(self, reply: ErrorReply) -> bytes:
        """The error inside a stream that has begun; no normal end follows it."""
        ...
