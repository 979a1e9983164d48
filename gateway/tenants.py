"""Who calls: a key to its tenant, by digest.

Rule: looked up by its whole digest, in memory only; an answer never repeats anything of a key. What the store says of
tenants is worked out when a key is first used, and again when it changes or its time is over.
"""

import hashlib
import hmac
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from budgets.limit import Limit
from config.effective import Effective
from config.model import Config
from config.tenants import Tenant
from gateway.admission import (
    FOREVER,
    NOTHING,
    Joined,
    Unusable,
    as_in_file,
    ends,
    ignored,
    joined,
    shared_boosts,
    standing,
)
from gateway.clock import wall
from gateway.credential import UNKNOWN, Credential
from gateway.errors import NotAuthenticated, StoreDown
from gateway.keys import PREFIX, Digests
from gateway.logs import log
from gateway.roster import Roster
from gateway.tenant_record import Boost, StoredTenant, organisation_of

RETRY: Final = ((b"retry-after", b"1"),)

_MADE_BY_US: Final = PREFIX.encode()
_UNTOLD: Final = "The API key cannot be checked now."


@dataclass(frozen=True, slots=True)
class Caller:
    """A tenant as one of its keys: what holds for it, its cache salt as raw JSON, the key's own budgets.

    `session_boosts` are of limits of single sessions.
    """

    key: str
    may: Effective
    cache_salt: bytes
    budgets: tuple[Limit, ...] = ()
    session_boosts: tuple[Boost, ...] = ()
    tenant: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "tenant", self.may.tenant)


class Admission:
    """A key that the store has a say in: whose it is, and its caller (None: refused) until a moment of wall time."""

    __slots__ = ("caller", "key", "secret_until", "tenant", "until")

    def __init__(self, tenant: str, key: str, secret_until: float = FOREVER) -> None:
        self.tenant = tenant
        self.key = key
        self.secret_until = secret_until
        self.caller: Caller | None = None
        self.until = -FOREVER


class Tenants:
    """All keys of one configuration and of the store. `secret` is the same for every gateway of a deployment.

    `roster` None: the file's keys only.
    """

    def __init__(self, config: Config, secret: bytes, roster: Roster | None = None) -> None:
        self._config = config
        self._secret = secret
        self._keyed = Digests(secret)
        self._roster = roster
        self._callers: dict[bytes, Caller] = {}  # of the file, whatever the time and the store
        self._admissions: dict[bytes, Admission] = {}
        self._digests: dict[str, Sequence[bytes]] = {}  # of the admissions of each tenant
        self._joined: dict[str, Joined | None] = {}
        for tenant in config.tenants.values():
            self._callers |= self._of_file(tenant)
        self.renew(tuple(roster.records) if roster is not None else ())

    def identify(self, headers: Mapping[bytes, bytes]) -> Caller:
        """The caller of a request. Raises `NotAuthenticated`; `StoreDown` where only the store could tell."""
        return self.caller(Credential.of(headers))

    def caller(self, credential: Credential) -> Caller:
        """Whose key it is at this moment. Raises what `identify` raises."""
        caller = self._caller_of(credential.key, credential.digest)
        if caller is None:
            raise NotAuthenticated(UNKNOWN)
        return caller

    def renew(self, names: Sequence[str]) -> Sequence[str]:
        """Take up what the roster has of these tenants and organisations by now; the tenants that are others for it."""
        tenants = tuple(dict.fromkeys([tenant for name in names for tenant in self._concerned(name)]))
        for name in tenants:
            self._renew_tenant(name)
        return tenants

    def _concerned(self, name: str) -> Sequence[str]:
        """The tenant of this name, or those of the organisation whose record has it."""
        if (organisation := organisation_of(name)) is None:
            return (name,)
        records = self._roster.records.values() if self._roster is not None else ()
        return (
            *[tenant.name for tenant in self._config.tenants.values() if tenant.organisation == organisation],
            *[each.name for each in records if (each.settings or {}).get("organisation") == organisation],
        )

    def _renew_tenant(self, name: str) -> None:
        for digest in self._digests.pop(name, ()):
            self._admissions.pop(digest, None)
        self._joined.pop(name, None)
        tenant = self._config.tenants.get(name)
        if tenant is not None:
            self._callers |= self._of_file(tenant)
        if (told := self._told(name)) is not None and (why := ignored(self._config, told)) is not None:
            log(logging.WARNING, "a tenant of the store is ignored", tenant=name, why=why)
        if (record := self._record(name)) is None:
            return
        admissions = _admissions(record, tenant)
        for digest in admissions:
            self._callers.pop(digest, None)
        self._admissions |= admissions
        self._digests[name] = tuple(admissions)

    def _of_file(self, tenant: Tenant) -> dict[bytes, Caller]:
        may, salt = self._config.effective(tenant), self._salt(tenant.name)
        return {bytes.fromhex(key.sha256): Caller(key.name, may, salt, key.budgets) for key in tenant.keys}

    def _caller_of(self, key: bytes, digest: bytes) -> Caller | None:
        roster = self._roster if key.startswith(_MADE_BY_US) else None
        if roster is not None and (found := self._admissions.get(self._keyed.of(key))) is not None:
            if not roster.trusted:
                raise StoreDown(_UNTOLD, headers=RETRY)
            return self._admitted(found)
        caller = self._callers.get(digest)
        if caller is None and (found := self._admissions.get(digest)) is not None:
            caller = self._admitted(found)
        if caller is None and roster is not None and not roster.current:  # it may have been made meanwhile
            raise StoreDown(_UNTOLD, headers=RETRY)
        return caller

    def _admitted(self, admission: Admission) -> Caller | None:
        """The caller at this moment, None if the key is refused."""
        if admission.until <= (now := wall()):
            self._renew(admission, now)
        return admission.caller

    def _renew(self, admission: Admission, now: float) -> None:
        tenant = self._join(admission.tenant)
        stands = NOTHING if tenant is None else standing(tenant, admission.key, admission.secret_until, now)
        admission.until, admission.caller = stands.until, None
        if stands.may is not None:
            salt = self._salt(admission.tenant)
            admission.caller = Caller(admission.key, stands.may, salt, stands.budgets, stands.sessions)

    def _join(self, name: str) -> Joined | None:
        """The tenant with what the store adds; worked out once, at its first call."""
        record = self._record(name)
        if name not in self._joined and record is not None:
            shared = shared_boosts(self._config, record, self._told)
            try:
                self._joined[name] = joined(self._config, record, shared)
            except Unusable as error:
                log(logging.WARNING, "a tenant of the store cannot be used", tenant=name, why=str(error))
                in_file = name in self._config.tenants
                self._joined[name] = as_in_file(self._config, record, shared) if in_file else None
        return self._joined.get(name)

    def _record(self, name: str) -> StoredTenant | None:
        """What the store has of a tenant, or of its organisation; None: nothing that counts."""
        record = self._told(name)
        if record is not None and ignored(self._config, record) is None:
            return record
        empty = StoredTenant(name)
        in_file = name in self._config.tenants
        return empty if in_file and shared_boosts(self._config, empty, self._told) else None

    def _told(self, name: str) -> StoredTenant | None:
        return None if self._roster is None else self._roster.records.get(name)

    def _salt(self, tenant: str) -> bytes:
        """As raw JSON."""
        return msgspec.json.encode(cache_salt(self._secret, tenant))


def _admissions(record: StoredTenant, tenant: Tenant | None) -> dict[bytes, Admission]:
    """By digest: every key of a tenant that the store has a say in."""
    ours = {
        bytes.fromhex(secret.digest): Admission(record.name, key.name, min(ends(key.until), ends(secret.until)))
        for key in record.keys
        for secret in key.secrets
    }
    in_file = () if tenant is None else tenant.keys
    return ours | {bytes.fromhex(key.sha256): Admission(record.name, key.name) for key in in_file}


def cache_salt(secret: bytes, tenant: str) -> str:
    """64 hex digits that only this tenant's calls carry, so that no tenant can probe another's prefix cache."""
    return hmac.new(secret, b"cache-salt:" + tenant.encode(), hashlib.sha256).hexdigest()
