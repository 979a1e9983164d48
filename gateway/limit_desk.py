"""The desk's part about limits: how they stand, another amount for a while, and a counter put right.

Rule: a limit is named by whom it belongs to and by the name that replies and metrics give it. What was used stays used,
whatever happens to the limit, until somebody says otherwise and why.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

from budgets.correction import Corrected, correcting
from budgets.grant import Misdated
from budgets.limit import Limit, too_much, units
from budgets.scope import Level, Owner, Scope
from budgets.statement import Account
from config.problems import shown
from config.tiers import amount_of
from gateway import tenant_changes
from gateway.admission import FOREVER, Joined, entitled, organisation_of_tenant
from gateway.clock import wall
from gateway.desk import Desk
from gateway.identity import named
from gateway.keys import holds_key
from gateway.scoping import levels
from gateway.statements import accounts, stated
from gateway.store import Store
from gateway.tenant_changes import Change, ChangeRefused, reasoned
from gateway.tenant_record import EVERY_SESSION, Boost, StoredTenant, organisation_record
from gateway.tenant_views import joined_for_operators
from gateway.tenants import Caller


@dataclass(frozen=True, slots=True)
class Place:
    """One limit: of a tenant, or of one of its keys, of one of its sessions (`EVERY_SESSION`: of each), or of its
    organisation. Raises `ChangeRefused` for more than one of these.
    """

    tenant: str
    limit: str
    key: str | None = None
    organisation: bool = False
    session: str | None = None

    def __post_init__(self) -> None:
        if [self.key is not None, self.organisation, self.session is not None].count(True) > 1:
            raise ChangeRefused("key, session and organisation name limits of different owners; choose one")
        if self.session != EVERY_SESSION:
            kept(self.session)

    @property
    def level(self) -> Level:
        if self.organisation:
            return "organisation"
        if self.session is not None:
            return "session"
        return "tenant" if self.key is None else "key"

    @property
    def kept_session(self) -> str | None:
        """The session's id as it is kept."""
        return self.session if self.session == EVERY_SESSION else kept(self.session)


class LimitDesk:
    """Raises as the desk does."""

    def __init__(self, desk: Desk, store: Store) -> None:
        self._desk = desk
        self._store = store

    async def accounts(self, tenant: str, key: str | None = None, session: str | None = None) -> tuple[Account, ...]:
        """How the limits of a tenant stand, those of a key, of a session and of the organisation included."""
        caller = caller_of(await self._joined(tenant), key, wall())
        return await accounts(self._store, caller, kept(session))

    async def limit(self, place: Place) -> tuple[Owner, Limit]:
        """One limit as it is configured."""
        return find(place, caller_of(await self._joined(place.tenant), place.key, FOREVER))

    async def boost(
        self, place: Place, written: object, until: float, burst: object = None, reason: str | None = None
    ) -> Boost:
        """Another amount, as people write it, until a moment. A burst grows as it does, unless one is given."""
        why = reasoned(reason) if reason is not None else None
        _, limit = await self.limit(place)
        if burst is not None and limit.kind != "rate":
            raise ChangeRefused("burst is of rates only; leave it out")
        amount = parts_of("amount", written, limit, least=1)
        parts = None if burst is None else parts_of("burst", burst, limit, least=1)
        if parts is None and limit.burst is not None:
            parts = max(1, limit.burst * amount // limit.amount)
            counted("burst, which grows as the amount does", parts, units(limit.dimension, parts), limit)
        boost = Boost(place.limit, amount, until, parts, place.key, place.kept_session, limit.dimension)
        await self._change(place, lambda record: tenant_changes.boosted(record, boost, why, wall()))
        return boost

    async def end_boost(self, place: Place) -> None:
        """The limit as configured, at once."""
        ended = (place.limit, place.key, place.kept_session)
        await self._change(place, lambda record: tenant_changes.boost_ended(record, *ended))

    async def set_used(self, place: Place, written: object, reason: str) -> tuple[Limit, Corrected]:
        """Say how much of a limit was used. The note is written first: no counter changes without one."""
        if place.session == EVERY_SESSION:
            raise ChangeRefused("each session has a counter of its own; name one")
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
            found = await self._store.ask(step)
        return limit, found

    async def _joined(self, tenant: str) -> Joined:
        record = (await self._desk.book.find(tenant)).record
        return joined_for_operators(self._desk.config(), tenant, record, await self._desk.shared(tenant, record))

    async def _change(self, place: Place, make: Callable[[StoredTenant], Change]) -> None:
        """On the tenant's record, or on that of its organisation, which need not fit any tenant."""
        if not place.organisation:
            await self._desk.change(place.tenant, lambda record: make(self._desk.some(place.tenant, record)))
            return
        found = (await self._desk.book.find(place.tenant)).record
        organisation = organisation_of_tenant(self._desk.config(), found or StoredTenant(place.tenant))
        if organisation is None:
            raise ChangeRefused(f"{place.tenant!r} is in no organisation", missing=True)
        name = organisation_record(organisation)
        empty = StoredTenant(name, created_at=wall())
        await self._desk.change(name, lambda record: replace(make(record or empty), checked=False))


def kept(session: str | None) -> str | None:
    """A session's id as it is kept. Raises `ChangeRefused` for what is none."""
    if session is not None and (named(session) is None or holds_key(session)):
        raise ChangeRefused("the session: expected an id as clients send it, or as error answers have it, and no key")
    return session and named(session)


def caller_of(tenant: Joined, key: str | None, now: float) -> Caller:
    """The tenant as one of its keys, or as none, whether it may call or not."""
    if key is not None and key not in tenant.keys:
        known = ", ".join(tenant.keys) or "none"
        raise ChangeRefused(f"{tenant.may.tenant!r} has no key {key!r}; known: {known}", missing=True)
    stands = entitled(tenant, key, FOREVER, now)
    assert stands.may is not None
    return Caller(key or "", stands.may, b"", stands.budgets, stands.sessions)


def parts_of(field: str, written: object, limit: Limit, least: int = 0) -> int:
    """An amount of the limit's dimension, as people write it. Raises `ChangeRefused`."""
    try:
        parts = amount_of(written, limit.dimension)
    except ValueError as error:
        raise ChangeRefused(f"{field}: {error}") from None
    if parts < least:
        raise ChangeRefused(f"{field}: expected at least {least}")
    counted(field, parts, written, limit)
    return parts


def counted(field: str, parts: int, written: object, limit: Limit) -> None:
    """Raises `ChangeRefused` for more than an amount may be."""
    if fault := too_much(limit.dimension, parts):
        raise ChangeRefused(f"{field}: {fault}{shown(written, fault)}")


def find(place: Place, caller: Caller) -> tuple[Owner, Limit]:
    """The limit at a place, with its owner. Raises `ChangeRefused`."""
    owners = levels(caller, place.kept_session)
    found = [(owner, limit) for owner, limits in owners if owner.level == place.level for limit in limits]
    for owner, limit in found:
        if limit.label == place.limit:
            return owner, limit
    known = ", ".join(limit.label for _, limit in found) or "none"
    raise ChangeRefused(f"there is no limit {place.limit!r} of the {place.level}; known: {known}", missing=True)
