"""Text at rest in the store: sealed with AES-256-GCM where the operator set keys, else marked as plain.

Rule: whoever writes text of a conversation to the store seals it here first, and whoever reads it opens it here. What
is sealed belongs to its place (its Redis key and field) and opens nowhere else; what does not open is a `VaultError`,
to be treated as if it were not there.

`KVGATE_STORE_KEYS` is `id:key,id:key,...`, each key 32 bytes in base64. The first one seals, all of them open, so a new
key is given to every gateway before any of them seals with it; with `plain` in the first place none does. Plain text
still opens once there are keys, so they can be brought in while sessions live; `KVGATE_STORE_PLAIN=refuse` ends that.

Every place has a key of its own, HMAC-SHA256(key, place), so random nonces of 96 bits never come near the 2^32
messages that NIST SP 800-38D allows for one key, however much is written.
"""

import base64
import binascii
import hashlib
import hmac
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import SecretStr

VARIABLE: Final = "KVGATE_STORE_KEYS"
KEPT_PLAIN: Final = "plain"
KEY_BYTES: Final = 32
NONCE_BYTES: Final = 12
TAG_BYTES: Final = 16
PLAIN: Final = b"\x00"
SEALED: Final = b"\x01"
"""First byte: a plain text follows, or the length of the key's id, the id, the nonce and the sealed text."""
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,32}")


class KeysError(Exception):
    """The keys cannot be used. One line: what is wrong and what to do about it; no key is in it."""


class VaultError(Exception):
    """What lies in the store cannot be opened: changed, moved, sealed with an unknown key, or no text of ours."""


class Vault:
    """Seals with the first key and opens with any; without keys, or with `seals` false, text is kept as it is behind a
    mark.

    Example: `Vault({"k1": key}).open(Vault({"k1": key}).seal(b"text", place), place) == b"text"`.
    """

    def __init__(
        self, keys: Mapping[str, bytes] = MappingProxyType({}), *, seals: bool = True, opens_plain: bool = True
    ) -> None:
        self._keys = {id.encode(): key for id, key in keys.items()}
        self._sealing = next(iter(self._keys), None) if seals else None
        self._opens_plain = opens_plain

    @property
    def seals(self) -> bool:
        """Whether no text is written open from now on."""
        return self._sealing is not None

    def seal(self, text: bytes, place: str) -> bytes:
        """What is stored at `place` for `text`: up to 62 bytes more, 1 more without keys."""
        if self._sealing is None:
            return PLAIN + text
        head = _head(self._sealing)
        nonce = os.urandom(NONCE_BYTES)
        return head + nonce + self._cipher(self._sealing, place).encrypt(nonce, text, _bound(head, place))

    def current(self, sealed: bytes) -> bool:
        """Whether it was sealed with the key that seals now; else it is to be written anew, so that keys can leave."""
        return sealed.startswith(PLAIN if self._sealing is None else _head(self._sealing))

    def open(self, sealed: bytes, place: str) -> bytes:
        """The text that was sealed for `place`. Raises `VaultError`."""
        if sealed[:1] == PLAIN:
            if self._opens_plain:
                return sealed[1:]
            raise VaultError("what is stored is plain text, which is refused")
        if sealed[:1] != SEALED or len(sealed) < 2:
            raise VaultError("what is stored is no sealed text")
        at = 2 + sealed[1]
        head, nonce, rest = sealed[:at], sealed[at : at + NONCE_BYTES], sealed[at + NONCE_BYTES :]
        if head[2:] not in self._keys:
            raise VaultError(f"what is stored was sealed with a key that is not in {VARIABLE}")
        if len(rest) < TAG_BYTES:
            raise VaultError("what is stored was cut off")
        try:
            return self._cipher(head[2:], place).decrypt(nonce, rest, _bound(head, place))
        except InvalidTag:
            raise VaultError("what is stored was changed, or belongs to another place") from None

    def _cipher(self, id: bytes, place: str) -> AESGCM:
        return AESGCM(hmac.digest(self._keys[id], place.encode(), hashlib.sha256))


def _head(id: bytes) -> bytes:
    return SEALED + bytes([len(id)]) + id


def _bound(head: bytes, place: str) -> bytes:
    """What the seal vouches for besides the text."""
    return head + place.encode()


def vault_of(keys: SecretStr | None, plain: Literal["open", "refuse"] = "open") -> Vault:
    """The vault for what `KVGATE_STORE_KEYS` and `KVGATE_STORE_PLAIN` say. Raises `KeysError`."""
    written = "" if keys is None else keys.get_secret_value()
    found: dict[str, bytes] = {}
    entries = written.split(",") if written.strip() else []
    seals = not entries or entries[0].strip() != KEPT_PLAIN
    for number, entry in enumerate(entries, 1):
        if number == 1 and not seals:
            continue
        id, colon, encoded = entry.strip().partition(":")
        if not colon or _ID.fullmatch(id) is None:
            raise KeysError(
                f"{VARIABLE}: key {number} must be written id:key, the id 1 to 32 letters, digits, `.`, `_` or `-`"
            )
        if id in found:
            raise KeysError(f"{VARIABLE}: keys must have different ids, and key {number} repeats one")
        found[id] = _decoded(encoded, number)
    if plain == "refuse" and not (found and seals):
        raise KeysError(
            f"KVGATE_STORE_PLAIN=refuse needs a key that seals; put one first in {VARIABLE}, or leave it out"
        )
    return Vault(found, seals=seals, opens_plain=plain == "open")


def _decoded(encoded: str, number: int) -> bytes:
    try:
        key = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise KeysError(
            f"{VARIABLE}: key {number} is not base64; make one with: openssl rand -base64 {KEY_BYTES}"
        ) from None
    if len(key) != KEY_BYTES:
        raise KeysError(
            f"{VARIABLE}: key {number} has {len(key)} bytes, it needs {KEY_BYTES}; "
            f"make one with: openssl rand -base64 {KEY_BYTES}"
        )
    return key
