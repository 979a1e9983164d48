"""Keys that kvgate makes: how they look, how they are kept, and how text is kept free of them.

Rule: a key exists in the answer that first shows it and in the requests of its owner, nowhere else. What is kept is a
digest under the deployment's secret, so that whoever reads the store can neither use a key nor test a guess.
"""

import hashlib
import hmac
import re
import secrets
import string
from typing import Final

PREFIX: Final = "sk-kvg-"
"""How every key that kvgate makes begins; scanners of repositories can look for it."""
_ALPHABET: Final = string.ascii_letters + string.digits
_LENGTH: Final = 43
"""Letters and digits behind the prefix: 256 bits."""
_LIKE_A_KEY: Final = re.compile(r"\bsk-[A-Za-z0-9_-]{8,}")


def new_key() -> str:
    """A key that nobody has had."""
    return PREFIX + "".join([secrets.choice(_ALPHABET) for _ in range(_LENGTH)])


class Digests:
    """Digests of keys under one secret, of 32 bytes: under such a digest a key of the store is found."""

    def __init__(self, secret: bytes) -> None:
        self._begun = hmac.new(secret, b"key:", hashlib.sha256)  # copied, it is half as dear as made anew

    def of(self, key: bytes) -> bytes:
        digest = self._begun.copy()
        digest.update(key)
        return digest.digest()


def mark_of(secret: bytes) -> str:
    """Tells one secret from another without telling anything of it; it stands beside the keys made with it."""
    return hmac.digest(secret, b"secret of keys", hashlib.sha256).hex()[:16]


def holds_key(text: str) -> bool:
    """Whether something in the text looks like a key, ours or another's."""
    return _LIKE_A_KEY.search(text) is not None


def without_keys(text: str) -> str:
    """The text, whatever looks like a key left out."""
    return _LIKE_A_KEY.sub("(a key)", text)
