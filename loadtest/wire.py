"""What every reply format has, and how its values become bytes.

Rule: a format says which values a reply or a frame holds; the delivery decides when they go out.
"""

import json
from typing import Protocol

import msgspec

from loadtest.job import Job
from loadtest.wire_errors import WireError


class Wire(Protocol):
    """One reply format. A method that may answer None has nothing to show at that point."""

    content_type: str
    end: bytes
    """What closes a stream."""

    def framed(self, value: object) -> bytes:
        """One event of a stream."""

    def whole(self, job: Job) -> object:
        """The body of a reply that is not streamed."""

    def opening(self, job: Job, choice: int) -> object | None:
        """The frame before the first token of a choice."""

    def token(self, job: Job, choice: int, index: int) -> object | None:
        """The frame of one token."""

    def closing(self, job: Job) -> object | None:
        """The frame after the last token."""

    def error(self) -> object:
        """The frame of an error after the first byte."""

    def busy(self) -> WireError:
        """The refusal at the admission limit."""

    def failed(self, status: int = 500) -> WireError:
        """The reply of an engine that could not generate."""


def dump(value: object) -> bytes:
    """JSON as on the wire: no spaces; a lone surrogate never leaves."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def framed(value: object) -> bytes:
    """One Server-Sent Event."""
    return b"data: " + dump(value) + b"\n\n"
