"""Request ids and trace headers.

Rule: the id of a request is always ours, so that no tenant can name, guess or reuse another's; what tracing systems
pass along is carried on unchanged.
"""

import uuid
from collections.abc import Mapping
from typing import Final

TRACE_HEADERS: Final = (b"traceparent", b"tracestate", b"baggage")


def request_id() -> str:
    """A fresh UUID, which is the one form that every engine accepts."""
    return str(uuid.uuid4())


def carried(headers: Mapping[bytes, bytes]) -> bytes:
    """The trace headers of a request as header lines."""
    return b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in TRACE_HEADERS if name in headers)
