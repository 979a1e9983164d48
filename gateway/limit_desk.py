"""The desk's part about limits: how they stand, another amount for a while, and a counter put right.

Rule: a limit is named by whom it belongs to and by the name that replies and metrics give it. What was used stays used,
whatever happens to the limit, until somebody says otherwise and why.
"""

from dataclasses import dataclass

from budgets.correction import Corrected, correcting
from budgets.grant import Misdated
from budgets.limit import Limit, units
from budgets.scope import Level, Owner, Scope
from budgets.statement import Account
from config.tiers import amount_of
from gateway import tenant_changes
from gateway.admission import FOREVER, Joined, entitled
from gateway.clock import wall
from gateway.desk import Desk
from gateway.scoping import levels
from gateway.statements import accounts, stated
from gateway.store import Store
from gateway.tenant_changes import ChangeRefused, reasoned
from gateway.tenant_record import Boost
from gateway.tenant_views import joined_for_operators
from gateway.tenants import Caller


@dataclass(frozen=True, slots=True)
class Place:
    """One limit: of a tenant, of one of its keys, or of its organisation."""

    tenant: str
    limit: str
    key: str | None = None
    organisation: bool = False

    @property
    def level(self) -> Level:
        if self.organisation:
            return "organisation"
        return "tenant" if self.key is None else "key"


class LimitDesk:
    """Raises as the desk does."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store

    async def accounts(self, tenant: str, key: str | None = None) -> tuple[Account, ...]:
        """How the limits of a tenant stand, those of a key and of the organisation included."""
        return await accounts(self._store, caller_of(await self._joined(tenant), key, wall()))

    async def limit(self, place: Place) -> tuple[Owner, Limit]:
        """One limit as it is configured."""
        return find(place, caller_of(await self._joined(place.tenant), place.key, FOREVER))

    async def boost(
        self, place: Place, written: object, until: float, burst: object = None, reason: str | None = None
    ) -> Boost:
        """Another amount, as people write it, until a moment. A burst grows as it does, unless one is given."""
        if place.organisation:
            raise ChangeRefused("a limit of an organisation is changed in the file")
        why = reasoned(reason) if reason is not None else None
        _, limit = await self.limit(place)
        if burst is not None and limit.kind != "rate":
            raise ChangeRefused("burst is of rates only; leave it out")
        amount = parts_of("amount", written, limit, least=1)
        grown = max(1, limit.burst * amount // limit.amount) if limit.burst is not None else None
        boost = Boost(
            place.limit, amount, until, grown if burst is None else parts_of("burst", burst, limit, least=1), place.key
        )
        await self._desk.change(
            place.tenant,
            lambda record: tenant_changes.boosted(self._desk.some(place.tenant, record), boost, why, wall()),
        )
        return boost

    async def end_boost(self, place: Place) -> None:
        """The limit as configured, at once."""
        await self._desk.change(
            place.tenant,
            lambda record: tenant_changes.boost_ended(self._desk.some(place.tenant, record), place.limit, place.key),
        )

    async def set_used(self, place: Place, written: object, reason: str) -> tuple[Limit, Corrected]:
        """Say how much of a limit was used. The note is written first: no counter changes without one."""
        caller = caller_of(await self._joined(place.tenant), place.key, wall())
        owner, limit = find(place, caller)
        if limit.kind == "slots":
            raise ChangeRefused(f"{limit.label!r} counts calls that run; it cannot be set")
        used = parts_of("used", written, limit)
        scope = Scope(place.tenant, (limit,), organisation=caller.may.organisation, owners=(owner,))
        why, (before,) = reasoned(reason), await stated(self._store, scope)
        said: dict[str, object] = {"limit": place.limit, "of": owner.label, "reason": why}
        said |= {"used": units(limit.dimension, used), "was": units(limit.dimension, before.used)}
        await self._desk.note(place.tenant, "used set", said)
        found: Corrected | Misdated = Misdated(wall())
        while isinstance(found, Misdated):
            step = correcting(scope, used, found.now_seconds)
            found = step.read(await self._store.run(step.script, step.keys, step.args))
        return limit, found

    async def _joined(self, tenant: str) -> Joined:
        record = (await self._desk.book.find(tenant)).record
        return joined_for_operators(self._desk.config(), tenant, record)


def caller_of(tenant: Joined, key: str | None, now: float) -> Caller:
    """The tenant as one of its keys, or as none, whether it may call or not."""
    if key is not None and key not in tenant.keys:
        known = ", ".join(tenant.keys) or "none"
        raise ChangeRefused(f"{tenant.may.tenant!r} has no key {key!r}; known: {known}", missing=True)
    stands = entitled(tenant, key, FOREVER, now)
    assert stands.may is not None
    return Caller(key or "", stands.may, b"", stands.budgets)


def parts_of(field: str, written: object, limit: Limit, least: int = 0) -> int:
    """An amount of the limit's dimension, as people write it. Raises `ChangeRefused`."""
    try:
        parts = amount_of(written, limit.dimension)
    except ValueError as error:
        raise ChangeRefused(f"{field}: {error}") from None
    if parts < least:
        raise ChangeRefused(f"{field}: expected at least {least}")
    return parts


def find(place: Place, caller: Caller) -> tuple[Owner, Limit]:
    """The limit at a place, with its owner. Raises `ChangeRefused`."""
    found = [(owner, limit) for owner, limits in levels(caller) if owner.level == place.level for limit in limits]
    for owner, limit in found:
        if limit.label == place.limit:
            return owner, limit
    known = ", ".join(limit.label for _, limit in found) or "none"
    raise ChangeRefused(f"there is no limit {place.limit!r} of the {place.level}; known: {known}", missing=True)
