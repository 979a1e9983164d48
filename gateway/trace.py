"""Request ids and trace headers.

Rule: the id of a request is always ours, so that no tenant can name, guess or reuse another's; what tracing systems
pass along is carried on unchanged.
"""

import os
import struct
from collections.abc import Iterator, Mapping
from typing import Final

TRACE_HEADERS: Final = (b"traceparent", b"tracestate", b"baggage")
_TRACING: Final = frozenset(TRACE_HEADERS)
ID_BYTES: Final = 16
_DIGITS: Final = struct.Struct("8s4sx3sx3s12s")
"""Of an id; two give way to its version and its variant."""
IDS_AT_ONCE: Final = 256
"""Random bytes are asked of the system for so many ids at once."""


def request_ids() -> Iterator[str]:
    """Random UUIDs (RFC 9562, version 4), the one form of an id that every engine accepts. Endless."""
    while True:
        for digits in _DIGITS.iter_unpack(os.urandom(ID_BYTES * IDS_AT_ONCE).hex().encode()):
            yield (b"%b-%b-4%b-a%b-%b" % digits).decode()


def carried(headers: Mapping[bytes, bytes]) -> bytes:
    """The trace headers of a request as header lines."""
    if _TRACING.isdisjoint(headers):
        return b""
    return b"".join([b"%b: %b\r\n" % (name, headers[name]) for name in TRACE_HEADERS if name in headers])
