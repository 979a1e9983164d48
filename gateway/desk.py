"""The desk where operators create and change tenants, keys and limits; the command line and the admin API sit at it.

Rule: a change is made on the record as it is read, checked against the configuration, and written with a note in one
step, or it is refused. A key is given out once, by the call that makes it, and is kept nowhere.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from config.model import Config
from gateway import tenant_changes
from gateway.admission import Unusable, ignored, joined, organisation_of_tenant, unpriced
from gateway.clock import wall
from gateway.keys import Digests, holds_key, mark_of, new_key
from gateway.store import Store
from gateway.tenant_book import Entry, Note, OtherSecret, TenantBook, Via
from gateway.tenant_changes import Change, ChangeRefused
from gateway.tenant_record import Boost, StoredTenant, organisation_of, organisation_record
from gateway.tenant_views import detail_of, summary_of

TRIES: Final = 5
MAX_WHO: Final = 64
Make = Callable[[StoredTenant | None], Change]


class Desk:
    """`config` gives the configuration in force, `secret` the deployment's. `who` changes things, `via` which way.

    Every method raises `StoreError` if the store does not answer, and `ChangeRefused` for what cannot be done.
    """

    def __init__(
        self, config: Callable[[], Config], store: Store, secret: Callable[[], bytes], who: str, via: Via
    ) -> None:
        self.config = config
        self.book = TenantBook(store)
        self._secret = secret
        self._who = called(who)
        self._via: Via = via

    async def tenants(self) -> list[dict[str, object]]:
        """A line about every tenant, of the file and of the store, by name."""
        config = self.config()
        found = [record async for record in self.book.records()]
        records = {record.name: record for record in found if organisation_of(record.name) is None}
        names = sorted(records.keys() | config.tenants.keys())
        return [summary_of(config, name, records.get(name)) for name in names]

    async def tenant(self, name: str) -> dict[str, object]:
        """Everything about one tenant; of keys no digest."""
        record = (await self.book.find(name)).record
        return detail_of(self.config(), name, record, wall(), await self.shared(name, record))

    async def shared(self, name: str, record: StoredTenant | None) -> tuple[Boost, ...]:
        """The boosts of the limits of a tenant's organisation."""
        organisation = organisation_of_tenant(self.config(), record or StoredTenant(name))
        shared = None if organisation is None else (await self.book.find(organisation_record(organisation))).record
        return () if shared is None else shared.boosts

    async def changes(self, tenant: str | None = None, most: int = 100) -> list[Entry]:
        """The last changes, the newest first."""
        return await self.book.changes(tenant, most)

    async def create(self, name: str, settings: dict[str, Any], *, again: bool = False) -> None:
        """A tenant that only the store has. `again`: it takes up what an earlier one of the name has left."""
        if name in self.config().tenants:
            raise ChangeRefused(f"{name!r} stands in the file; choose another name")
        if not again and await self.book.changes(name, 1) and (await self.book.find(name)).record is None:
            raise ChangeRefused(
                f"there was a tenant {name!r} before, whose counters, sessions and records a new one would take up; "
                "choose another name, or say that it is to be used again"
            )
        await self.change(name, lambda record: tenant_changes.created(record, name, settings, wall()))

    async def alter(self, name: str, settings: dict[str, Any]) -> None:
        """Other settings for a tenant of the store; None takes one away."""
        await self.change(name, lambda record: tenant_changes.altered(self.some(name, record), settings))

    async def delete(self, name: str) -> None:
        """Forget a tenant of the store, or what the store adds to one of the file. Its budgets and records stay."""

        def make(record: StoredTenant | None) -> Change:
            kept = _kept(name, record)
            if ignored(self.config(), kept) is None and kept.settings is None and (kept.disabled or kept.disabled_keys):
                raise ChangeRefused(f"something of {name!r} is disabled, and would not be any more; enable it first")
            return tenant_changes.deleted(kept)

        await self.change(name, make)

    async def switch(self, name: str, on: bool) -> None:
        """Refuse all keys of a tenant, or do so no more."""
        await self.change(name, lambda record: tenant_changes.switched(self.some(name, record), on))

    async def create_key(
        self, tenant: str, name: str, until: float | None = None, budgets: tuple[dict[str, Any], ...] = ()
    ) -> str:
        """A new key: the only time it is seen."""
        key = new_key()
        digest = Digests(self._secret()).of(key.encode()).hex()

        def make(record: StoredTenant | None) -> Change:
            now, in_file = wall(), self.keys_in_file(tenant)
            return tenant_changes.key_created(self.some(tenant, record), name, digest, until, budgets, now, in_file)

        await self.change(tenant, make, mark_of(self._secret()))
        return key

    async def rotate(self, tenant: str, name: str, overlap_seconds: float) -> str:
        """A new key under an old one's name, which holds for `overlap_seconds` more."""
        key = new_key()
        digest = Digests(self._secret()).of(key.encode()).hex()

        def make(record: StoredTenant | None) -> Change:
            return tenant_changes.key_rotated(self.some(tenant, record), name, digest, overlap_seconds, wall())

        await self.change(tenant, make, mark_of(self._secret()))
        return key

    async def expire(self, tenant: str, name: str, until: float | None) -> None:
        """Let a key end at a moment, or not end."""
        await self.change(tenant, lambda record: tenant_changes.key_expires(self.some(tenant, record), name, until))

    async def switch_key(self, tenant: str, name: str, on: bool) -> None:
        """Refuse a key, of the store or of the file, or do so no more."""
        known = self.keys_in_file(tenant)
        await self.change(
            tenant, lambda record: tenant_changes.key_switched(self.some(tenant, record), name, on, known)
        )

    async def delete_key(self, tenant: str, name: str) -> None:
        """Forget a key of the store."""
        known = self.keys_in_file(tenant)
        await self.change(tenant, lambda record: tenant_changes.key_deleted(self.some(tenant, record), name, known))

    async def change(self, tenant: str, make: Make, mark: str = "") -> None:
        """Make a change on the record there is, again if somebody else was faster."""
        for _ in range(TRIES):
            found = await self.book.find(tenant)
            change = make(found.record)
            note = Note(self._who, self._via, change.action, change.detail)
            try:
                if await self.book.put(tenant, found, self._fitting(change), note, mark):
                    return
            except OtherSecret:
                raise ChangeRefused(
                    "the keys in the store were made with another secret; set KVGATE_SECRET to the one of the gateways"
                ) from None
        raise ChangeRefused("somebody else is changing this tenant; try again")

    async def note(self, tenant: str, action: str, detail: Mapping[str, object]) -> None:
        """Note something that is done to a tenant elsewhere than in its record."""
        await self.change(tenant, lambda record: Change(record, action, detail))

    def some(self, name: str, record: StoredTenant | None) -> StoredTenant:
        """The record of a tenant, an empty one for a tenant of the file. One that does not count is not changed."""
        if record is None and name in self.config().tenants:
            return StoredTenant(name, created_at=wall())
        if record is None:
            raise ChangeRefused(f"there is no tenant {name!r}", missing=True)
        if (why := ignored(self.config(), record)) is not None:
            raise ChangeRefused(f"{name!r} has a record in the store, but {why}; delete it first")
        return record

    def keys_in_file(self, tenant: str) -> frozenset[str]:
        """Names of a tenant's keys there."""
        found = self.config().tenants.get(tenant)
        return frozenset(key.name for key in found.keys) if found is not None else frozenset()

    def _fitting(self, change: Change) -> StoredTenant | None:
        """The record as it will be kept."""
        if change.after is None:
            return None
        if change.checked:
            try:
                joined(self.config(), change.after)
            except Unusable as error:
                raise ChangeRefused(str(error)) from None
        if change.priced and (lacks := unpriced(self.config(), change.after)):
            raise ChangeRefused(lacks)
        after = tenant_changes.tidied(change.after, wall())
        return None if after.says_nothing else after


def called(who: str) -> str:
    """Who somebody says to be. Raises `ChangeRefused`."""
    if not 0 < len(who) <= MAX_WHO or not who.isprintable() or holds_key(who):
        raise ChangeRefused(f"who changes something is 1 to {MAX_WHO} printable characters, and no key")
    return who


def _kept(name: str, record: StoredTenant | None) -> StoredTenant:
    if record is None or organisation_of(name) is not None:
        raise ChangeRefused(f"the store has no record of {name!r}", missing=True)
    return record
