"""Characters that are none: halves of surrogate pairs, as clients leave them behind that cut a text inside an emoji.

Rule: no engine takes them (strict JSON readers refuse them, tokenizers cannot encode them), so none ever leaves us.
Each becomes U+FFFD where it stands, pairs are joined, and every other byte stays. For escapes a body is searched only
once it could not be read.
"""

import re
from typing import Final

_ESCAPE: Final = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(?P<lone>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""Any escape of a JSON string, so that a backslash that is itself escaped is passed over; a whole pair first."""

_ENCODED: Final = re.compile(rb"(?:\xed[\xa0-\xbf][\x80-\xbf])+")
"""Surrogates written out as bytes, which UTF-8 forbids."""


def sound(body: bytes) -> tuple[bytes, int]:
    """`body` with lone surrogates replaced, and how many places were mended; the very same object for none."""
    mended, escapes = _without_escapes(body)
    mended, encoded = _without_encoded(mended)
    return (mended, escapes + encoded) if escapes + encoded else (body, 0)


def has_encoded(body: bytes) -> bool:
    """Whether surrogates stand in the body as bytes; a JSON reader that does not look inside would pass them on."""
    return body.find(b"\xed") >= 0 and _ENCODED.search(body) is not None


def _without_escapes(body: bytes) -> tuple[bytes, int]:
    count = 0

    def replaced(match: re.Match[bytes]) -> bytes:
        nonlocal count
        if match["lone"] is None:
            return match[0]
        count += 1
        return b"\\ufffd"

    return _ESCAPE.sub(replaced, body), count


def _without_encoded(body: bytes) -> tuple[bytes, int]:
    return _ENCODED.subn(lambda run: _joined(run[0]), body)


def _joined(run: bytes) -> bytes:
    text = run.decode("utf-8", "surrogatepass")
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
