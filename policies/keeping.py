"""Originals that are kept elsewhere, of shortened tool outputs and of messages left out, and their handles.

Rule: a handle is made of what is kept, under a tenant's own key, so the same output has the same handle in every
session of a tenant and none that another tenant could know. Nothing is kept here: whoever carries a plan out keeps the
originals first, and where that fails plans again with only those handles that hold.
"""

import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Annotated, Final

import msgspec
from pydantic import Field

PREFIX: Final = "kvo_"
TURNS_PREFIX: Final = "kvt_"
"""Of messages left out, which are kept in parts; a part has a handle like that of an output."""
HANDLE_BYTES: Final = 10
HANDLE: Final = re.compile("kv[ot]_[a-z2-7]{16}")
MAX_BYTES: Final = 4 * 1024 * 1024
"""A longer output is shortened without a handle: it would push out a whole tenant's originals."""

KeepSeconds = Annotated[float, Field(ge=0, le=30 * 86_400, alias="keep_original")]
"""How long originals are kept, at most 30 days; 0: not at all."""

_LETTERS: Final = "abcdefghijklmnopqrstuvwxyz234567"


class Keeping(msgspec.Struct, frozen=True):
    """What may be promised. `key` makes the handles; `only`: the handles that may be shown, None for every one."""

    key: bytes = b""
    only: frozenset[str] | None = None

    def handle_of(self, text: str) -> str:
        """The handle of an original; empty where it cannot be kept."""
        if self.only is not None and not self.only:
            return ""
        original = text.encode("utf-8", "surrogatepass")
        if len(original) > MAX_BYTES:
            return ""
        handle = PREFIX + _spelled(blake2b(original, key=self.key, digest_size=HANDLE_BYTES).digest())
        return handle if self.allows(handle) else ""

    def handle_of_messages(self, digests: Sequence[bytes]) -> str:
        """The handle of messages left out, in order; empty where it may not be shown."""
        if self.only is not None and not self.only:
            return ""
        handle = TURNS_PREFIX + self._spelled_messages(digests)
        return handle if self.allows(handle) else ""

    def part_of_messages(self, digests: Sequence[bytes]) -> str:
        """The handle of a part of them."""
        return PREFIX + self._spelled_messages(digests)

    def _spelled_messages(self, digests: Sequence[bytes]) -> str:
        """`person` keeps them apart from originals whose text happens to be those digests."""
        named = blake2b(b"".join(digests), key=self.key, digest_size=HANDLE_BYTES, person=b"messages")
        return _spelled(named.digest())

    def allows(self, handle: str) -> bool:
        """Whether a handle may be shown."""
        return self.only is None or handle in self.only


NOTHING: Final = Keeping(only=frozenset())
"""No handle is shown."""


def _spelled(digest: bytes) -> str:
    """Base32 in small letters: 5 bits a letter, nothing that a model would quote, break or capitalise."""
    bits = int.from_bytes(digest, "big")
    return "".join([_LETTERS[bits >> shift & 31] for shift in range(8 * len(digest) - 5, -1, -5)])
