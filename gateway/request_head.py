"""What the head of a request must be like, beyond what llhttp makes sure of (RFC 9110, RFC 9112).

Rule: what two servers could read in two ways is refused before its body is read; so is what is larger than may be.
"""

from collections.abc import Mapping
from typing import Final

import httptools

VERSIONS: Final = ("1.1", "1.0")
LONGEST_LENGTH: Final = 20
"""Digits of the largest number that llhttp can count to; Python takes its time for thousands of them."""
START_LINE_BYTES: Final = len("  HTTP/1.1\r\n")
LINE_BYTES: Final = len(": \r\n")
NOT_HTTP: Final = "The request is not well-formed HTTP/1.1."


def refusal_of(version: str, headers: Mapping[bytes, bytes], body_bytes: int) -> tuple[int, str] | None:
    """Status and message for a head that is not taken; `None` for one that is. `body_bytes`: the most there may be."""
    length, encoding = headers.get(b"content-length", b"0"), headers.get(b"transfer-encoding")
    if version not in VERSIONS:
        return 505, "Only HTTP/1.1 and HTTP/1.0 are understood."
    host = headers.get(b"host")
    if (host is None and version == "1.1") or (host is not None and b"," in host):
        return 400, "The request does not name one host."
    if len(length) > LONGEST_LENGTH or (version == "1.0" and encoding is not None):
        return 400, NOT_HTTP
    if int(length) > body_bytes:
        return 413, f"The body is longer than {body_bytes} bytes."
    if encoding is not None and encoding.lower() != b"chunked":
        return 501, "The only transfer encoding understood is chunked."
    return None


def size_of(method: bytes, url: bytes, headers: Mapping[bytes, bytes]) -> int:
    """Bytes of a head as nearly everybody writes it: one space where one may stand, no header twice."""
    first = START_LINE_BYTES + len(method) + len(url)
    return first + LINE_BYTES * len(headers) + sum(map(len, headers)) + sum(map(len, headers.values())) + len("\r\n")


def written(method: bytes, url: bytes, headers: Mapping[bytes, bytes]) -> bytes:
    """A head of HTTP/1.1 as bytes."""
    lines = [b"%b: %b" % header for header in headers.items()]
    return b"\r\n".join((b"%b %b HTTP/1.1" % (method, url), *lines, b"", b""))


def path_of(url: bytes) -> str:
    """The path alone, of an origin-form or absolute-form target; a target that is neither gives an empty path."""
    try:
        return (httptools.parse_url(url).path or b"").decode("ascii")
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        return ""


def query_of(url: bytes) -> str:
    """What stands behind the path of a target; empty for a target that is neither form."""
    try:
        return (httptools.parse_url(url).query or b"").decode("ascii", "replace")
    except httptools.HttpParserInvalidURLError:
        return ""
