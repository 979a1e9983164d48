"""Tenants as operators are shown them, of the file and of the store alike.

Rule: names, numbers and moments; never a key, never a digest of one.
"""

from collections.abc import Mapping

from config.model import Config
from gateway.admission import Joined, Unusable, as_in_file, ends, ignored, joined, unpriced
from gateway.moments import told
from gateway.tenant_changes import ChangeRefused
from gateway.tenant_record import Boost, StoredKey, StoredTenant, organisation_of

View = dict[str, object]


def joined_for_operators(
    config: Config, name: str, record: StoredTenant | None, shared: tuple[Boost, ...] = ()
) -> Joined:
    """The tenant as its calls have it. Raises `ChangeRefused`: there is none, or its record does not fit the file."""
    if name in config.tenants and (record is None or ignored(config, record) is not None):
        return as_in_file(config, StoredTenant(name), shared)
    if record is None:
        raise ChangeRefused(f"there is no tenant {name!r}", missing=True)
    try:
        return joined(config, record, shared)
    except Unusable as error:
        if name in config.tenants:
            return as_in_file(config, record, shared)
        raise ChangeRefused(f"{name!r} cannot be used: {error}") from None


def summary_of(config: Config, name: str, record: StoredTenant | None) -> View:
    """One line about a tenant."""
    tenant = config.tenants.get(name)
    settings: Mapping[str, object] = (record.settings if record is not None else None) or {}
    own = () if record is None else record.keys
    return {
        "name": name,
        "from": "file" if tenant is not None else "store",
        "tier": tenant.tier if tenant is not None else settings.get("tier"),
        "organisation": tenant.organisation if tenant is not None else settings.get("organisation"),
        "enabled": record is None or not record.disabled,
        "keys": len(own) + (len(tenant.keys) if tenant is not None else 0),
        "boosts": 0 if record is None else len(record.boosts),
        "problem": problem_of(config, record),
    }


def detail_of(
    config: Config, name: str, record: StoredTenant | None, now: float, shared: tuple[Boost, ...] = ()
) -> View:
    """Everything about one tenant. Raises `ChangeRefused` if there is none."""
    tenant = config.tenants.get(name)
    if tenant is None and (record is None or organisation_of(name) is not None):
        raise ChangeRefused(f"there is no tenant {name!r}", missing=True)
    off = () if record is None else record.disabled_keys
    in_file: list[View] = [] if tenant is None else [_file_key(key.name, off) for key in tenant.keys]
    return summary_of(config, name, record) | {
        "settings": record.settings if record is not None else None,
        "created_at": told(record.created_at) if record is not None and record.settings is not None else None,
        "keys": [*in_file, *([] if record is None else [_key(key, off, now) for key in record.keys])],
        "boosts": [
            *[_boost(boost) for boost in (record.boosts if record is not None else ()) if boost.until > now],
            *[_boost(boost) | {"organisation": True} for boost in shared if boost.until > now],
        ],
    }


def problem_of(config: Config, record: StoredTenant | None) -> str | None:
    """Why the record does not count, if it does not; or which of its calls are refused for want of a price."""
    if record is None:
        return None
    try:
        joined(config, record)
    except Unusable as error:
        return str(error)
    return unpriced(config, record) or None


def _file_key(name: str, off: tuple[str, ...]) -> View:
    return {"name": name, "from": "file", "state": "disabled" if name in off else "valid"}


def _key(key: StoredKey, off: tuple[str, ...], now: float) -> View:
    older = [each.until for each in key.secrets[1:] if each.until is not None and each.until > now]
    state = "disabled" if key.name in off else "expired" if ends(key.until) <= now else "valid"
    return {
        "name": key.name,
        "from": "store",
        "state": state,
        "created_at": told(key.created_at),
        "rotated_at": told(key.secrets[0].since) if key.secrets[0].since != key.created_at else None,
        "old_until": told(max(older)) if older else None,
        "expires_at": key.until and told(key.until),
        "budgets": list(key.budgets),
    }


def _boost(boost: Boost) -> View:
    fields = {name: value for name, value in boost.told.items() if value is not None}
    return fields | {"until": told(boost.until)}
