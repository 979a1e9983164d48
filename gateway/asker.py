"""Who a request would come from: known by a key, or by name, for an operator who wants to know what holds.

Rule: an operator is told why a key is refused, which clients are not; the key itself is never repeated.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

from config.model import Config
from gateway.admission import shared_boosts
from gateway.clock import wall
from gateway.errors import NotAuthenticated
from gateway.keys import Digests
from gateway.limit_desk import caller_of
from gateway.roster import Roster
from gateway.tenant_record import StoredTenant
from gateway.tenant_views import detail_of, joined_for_operators
from gateway.tenants import Caller, Tenants


@dataclass(frozen=True, slots=True)
class Asker:
    """Who asks: by a key, or by a tenant's name and perhaps a key's. `session`: the id the client would send."""

    key: str | None = None
    tenant: str = ""
    key_name: str | None = None
    session: str | None = None


def identified(config: Config, roster: Roster, tenants: Tenants, secret: bytes, asker: Asker) -> Caller:
    """The caller. Raises `NotAuthenticated` with the reason that clients are not told, or `ChangeRefused`."""
    if asker.key is None:
        record = roster.records.get(asker.tenant)
        shared = shared_boosts(config, record or StoredTenant(asker.tenant), roster.records.get)
        joined = joined_for_operators(config, asker.tenant, record, shared)
        return caller_of(joined, asker.key_name, wall())
    try:
        return tenants.identify({b"x-api-key": asker.key.encode()})
    except NotAuthenticated as fault:
        raise NotAuthenticated(why_refused(config, roster, secret, asker.key.encode()) or fault.message) from None


def why_refused(config: Config, roster: Roster, secret: bytes, key: bytes) -> str | None:
    """What is wrong with a key that is known; None if it is not."""
    for tenant, name in _owners(config, roster, Digests(secret).of(key).hex(), hashlib.sha256(key).hexdigest()):
        detail = detail_of(config, tenant, roster.records.get(tenant), wall())
        keys = detail["keys"]
        assert isinstance(keys, list)
        state = next(each["state"] for each in keys if each["name"] == name)
        why = detail["problem"] or (state if detail["enabled"] else "its tenant is disabled")
        return f"The key {name!r} of {tenant!r} is refused: {'replaced' if why == 'valid' else why}."
    return None


def _owners(config: Config, roster: Roster, keyed: str, plain: str) -> Iterator[tuple[str, str]]:
    """Tenants and names of a key with one of these digests: under the secret in the store, plain in the file."""
    for tenant in config.tenants.values():
        yield from ((tenant.name, key.name) for key in tenant.keys if key.sha256 == plain)
    for record in roster.records.values():
        for key in record.keys:
            if any(secret.digest == keyed for secret in key.secrets):
                yield record.name, key.name
