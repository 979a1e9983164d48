"""Who calls: a key to its tenant, by digest.

Rule: exactly one credential, looked up by its whole SHA-256; an answer never repeats anything of a key. Which header
carried it makes no difference, two of them are refused rather than guessed between.
"""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import msgspec

from budgets.limit import Limit
from config.effective import Effective
from config.model import Config
from gateway.errors import NotAuthenticated

CREDENTIAL_HEADERS: Final = (b"authorization", b"x-api-key", b"api-key")
MAX_KEY_BYTES: Final = 512

_MISSING: Final = "No API key was given. Send it as `Authorization: Bearer KEY`."
_UNKNOWN: Final = "The API key is not valid here."
_TWICE: Final = "More than one API key was given; send exactly one."


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant as one of its keys: what holds for it, its cache salt as raw JSON, the key's own budgets."""

    key: str
    may: Effective
    cache_salt: bytes
    budgets: tuple[Limit, ...] = ()

    @property
    def tenant(self) -> str:
        return self.may.tenant


class Tenants:
    """All keys of one configuration. `secret` makes the cache salts: the same for every gateway of a deployment."""

    def __init__(self, config: Config, secret: bytes) -> None:
        self._callers: dict[bytes, Caller] = {}
        for tenant in config.tenants.values():
            salt = msgspec.json.encode(cache_salt(secret, tenant.name))
            for key in tenant.keys:
                caller = Caller(key.name, config.effective(tenant), salt, key.budgets)
                self._callers[bytes.fromhex(key.sha256)] = caller

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller of a request. Raises `NotAuthenticated`."""
        given = [(name, headers[name]) for name in CREDENTIAL_HEADERS if name in headers]
        if not given:
            raise NotAuthenticated(_MISSING)
        if len(given) > 1:
            raise NotAuthenticated(_TWICE)
        key = _key_of(*given[0])
        caller = self._callers.get(hashlib.sha256(key).digest()) if 0 < len(key) <= MAX_KEY_BYTES else None
        if caller is None:
            raise NotAuthenticated(_UNKNOWN)
        return caller


def _key_of(name: bytes, value: bytes) -> bytes:
    if name != b"authorization":
        return value.strip()
    scheme, _, key = value.partition(b" ")
    return key.strip() if scheme.lower() == b"bearer" else b""


def cache_salt(secret: bytes, tenant: str) -> str:
    """64 hex digits that only this tenant's calls carry, so that no tenant can probe another's prefix cache."""
    return hmac.new(secret, b"cache-salt:" + tenant.encode(), hashlib.sha256).hexdigest()
