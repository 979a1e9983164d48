"""Who a key of a tenant is at a moment, by what the file and the store say of the tenant together.

Rule: pure. A tenant of the file and one of the store are never mixed: where both have settings for a name, the file's
tenant is the tenant and the store's record does not count at all, its keys included.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from budgets.limit import Limit
from config import joining
from config.effective import Effective
from config.joining import problems, tenant_of
from config.model import Config
from config.problems import ConfigError
from config.tenants import Key, Tenant
from gateway.tenant_record import EVERY_SESSION, Boost, StoredTenant, organisation_record

FOREVER: Final = float("inf")
HIDDEN: Final = "the file has a tenant of this name, so this record does not count"
ORPHAN: Final = "it adds to a tenant of the file, and the file has none of this name"


class Unusable(Exception):
    """A record that does not fit the configuration; says why, for the operator."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A tenant with what the store adds. `keys` are all of its keys by name, those of the file first.

    `shared` are the boosts of its organisation's limits.
    """

    may: Effective
    keys: dict[str, Key]
    record: StoredTenant
    shared: tuple[Boost, ...] = ()


@dataclass(frozen=True, slots=True)
class Standing:
    """What a key may at a moment, and until when that is so. `may` None: nothing, and `until` does not count.

    `sessions` are boosts of limits of single sessions.
    """

    may: Effective | None
    budgets: tuple[Limit, ...] = ()
    until: float = FOREVER
    sessions: tuple[Boost, ...] = ()


NOTHING: Final = Standing(None)


def ends(until: float | None) -> float:
    """When something ends; None: never."""
    return FOREVER if until is None else until


def ignored(config: Config, record: StoredTenant) -> str | None:
    """Why a record does not count under this configuration, by its name alone."""
    in_file = record.name in config.tenants
    if record.settings is not None:
        return HIDDEN if in_file else None
    return None if in_file else ORPHAN


def as_in_file(config: Config, record: StoredTenant, shared: tuple[Boost, ...] = ()) -> Joined:
    """The file's tenant, of whose record the switches and the boosts can be used, the keys cannot."""
    tenant = config.tenants[record.name]
    return Joined(config.effective(tenant), {key.name: key for key in tenant.keys}, record, shared)


def joined(config: Config, record: StoredTenant, shared: tuple[Boost, ...] = ()) -> Joined:
    """The tenant under this configuration. Raises `Unusable`."""
    if (why := ignored(config, record)) is not None:
        raise Unusable(why)
    try:
        tenant = with_keys(config, record)
    except ConfigError as error:
        raise Unusable(str(error)) from None
    if found := problems(config, tenant):
        raise Unusable("; ".join(map(str, found)))
    return Joined(config.resolved(tenant), {key.name: key for key in tenant.keys}, record, shared)


def unpriced(config: Config, record: StoredTenant) -> str:
    """What budgets of money bound that has no price, of a tenant that can be used all the same; "": nothing."""
    return "; ".join(map(str, joining.unpriced(config, with_keys(config, record))))


def organisation_of_tenant(config: Config, record: StoredTenant) -> str | None:
    """The organisation that a tenant is in: by the file where it stands there, else by its own settings."""
    in_file = config.tenants.get(record.name)
    return (record.settings or {}).get("organisation") if in_file is None else in_file.organisation


def shared_boosts(
    config: Config, record: StoredTenant, told: Callable[[str], StoredTenant | None]
) -> tuple[Boost, ...]:
    """The boosts of the limits of a tenant's organisation; `told(name)` is what the store has under a name."""
    organisation = organisation_of_tenant(config, record)
    shared = None if organisation is None else told(organisation_record(organisation))
    return () if shared is None else shared.boosts


def with_keys(config: Config, record: StoredTenant) -> Tenant:
    """The tenant as the file would have it. Raises `ConfigError`."""
    base = tenant_of(record.name, record.settings) if record.settings is not None else config.tenants[record.name]
    taken = {key.name for key in base.keys}
    keys = [
        {"name": key.name, "sha256": key.secrets[0].digest, "budgets": key.budgets}
        for key in record.keys
        if key.secrets and key.name not in taken
    ]
    own = tenant_of(record.name, {"tier": base.tier, "keys": keys}).keys
    return base.model_copy(update={"keys": (*base.keys, *own)})


def standing(tenant: Joined, key: str, until: float, now: float) -> Standing:
    """What the key of this name may at a moment; its secret holds `until` then."""
    record = tenant.record
    if key not in tenant.keys or until <= now or record.disabled or key in record.disabled_keys:
        return NOTHING
    return entitled(tenant, key, until, now)


def entitled(tenant: Joined, key: str | None, until: float, now: float) -> Standing:
    """What would hold for a key at a moment (None: for the tenant) if nothing was switched off."""
    own = tenant.keys[key].budgets if key is not None else ()
    boosts = [boost for boost in tenant.record.boosts if boost.until > now and boost.key in (None, key)]
    shared = [boost for boost in tenant.shared if boost.until > now]
    if not boosts and not shared:
        return Standing(tenant.may, own, until)
    of_tenant, of_key, of_each, of_one = parted(boosts)
    session = tenant.may.session
    may = replace(
        tenant.may,
        budgets=boosted(tenant.may.budgets, of_tenant),
        organisation_budgets=boosted(tenant.may.organisation_budgets, shared),
        session=session.model_copy(update={"budgets": boosted(session.budgets, of_each)}) if of_each else session,
    )
    ends_at = min(until, *(boost.until for boost in (*boosts, *shared)))
    return Standing(may, boosted(own, of_key), ends_at, tuple(of_one))


def parted(boosts: Sequence[Boost]) -> tuple[list[Boost], list[Boost], list[Boost], list[Boost]]:
    """Boosts of the tenant, of its key, of each of its sessions, and of one of them."""
    sessions = [boost for boost in boosts if boost.session is not None]
    return (
        [boost for boost in boosts if boost.of == (None, None)],
        [boost for boost in boosts if boost.key is not None],
        [boost for boost in sessions if boost.session == EVERY_SESSION],
        [boost for boost in sessions if boost.session != EVERY_SESSION],
    )


def boosted(limits: Sequence[Limit], boosts: Sequence[Boost]) -> tuple[Limit, ...]:
    """The limits with the amounts of the boosts; what is in use of them stays."""
    amounts = {boost.limit: {"amount": boost.amount, "burst": boost.burst} for boost in boosts}
    return tuple(
        [limit.model_copy(update=amounts[limit.label]) if limit.label in amounts else limit for limit in limits]
    )
