"""Request ids and trace headers.

Rule: the id of a request is always ours, so that no tenant can name, guess or reuse another's; what tracing systems
pass along is carried on unchanged.
"""

import os
from collections.abc import Mapping
from typing import Final

TRACE_HEADERS: Final = (b"traceparent", b"tracestate", b"baggage")


def request_id() -> str:
    """A fresh random UUID (RFC 9562, version 4), which is the one form that every engine accepts."""
    digits = os.urandom(16).hex()
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-a{digits[17:20]}-{digits[20:]}"


def carried(headers: Mapping[bytes, bytes]) -> bytes:
    """The trace headers of a request as header lines."""
    return b"".join(b"%b: %b\r\n" % (name, headers[name]) for name in TRACE_HEADERS if name in headers)
