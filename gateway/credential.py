"""The key that a request was sent with, found in its head.

Rule: exactly one credential, whichever header carried it: two are refused rather than guessed between. What is found is
kept with the head of a connection, so that a head which comes again is not read again; whether the key holds is asked
at every call.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

import msgspec

from gateway.errors import NotAuthenticated

CREDENTIAL_HEADERS: Final = (b"authorization", b"x-api-key", b"api-key")
MAX_KEY_BYTES: Final = 512
UNKNOWN: Final = "The API key is not valid here."

_MISSING: Final = "No API key was given. Send it as `Authorization: Bearer KEY`."
_TWICE: Final = "More than one API key was given; send exactly one."


class Credential(msgspec.Struct, frozen=True):
    """A key as it was given, and its SHA-256."""

    key: bytes
    digest: bytes

    @classmethod
    def of(cls, headers: Mapping[bytes, bytes]) -> "Credential":
        """Raises `NotAuthenticated` where there is none, more than one, or none that could be a key."""
        given = [(name, headers[name]) for name in CREDENTIAL_HEADERS if name in headers]
        if not given:
            raise NotAuthenticated(_MISSING)
        if len(given) > 1:
            raise NotAuthenticated(_TWICE)
        key = _key_of(*given[0])
        if not 0 < len(key) <= MAX_KEY_BYTES:
            raise NotAuthenticated(UNKNOWN)
        return cls(key, hashlib.sha256(key).digest())


def _key_of(name: bytes, value: bytes) -> bytes:
    if name != b"authorization":
        return value.strip()
    scheme, _, key = value.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""
