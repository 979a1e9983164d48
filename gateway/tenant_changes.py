"""What operators may do to a tenant's record, each as a function from the record there is to the one there will be.

Rule: pure; time is an argument. What is refused says which value is wrong and what would be right. Nothing that goes
into the list of changes holds a key or a digest of one.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from gateway.keys import holds_key, without_keys
from gateway.moments import told
from gateway.tenant_record import Boost, Secret, StoredKey, StoredTenant

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")
"""As in the file."""
MAX_TEXT: Final = 500
DELETED: Final = "tenant deleted"


class ChangeRefused(Exception):
    """A change that cannot be made. `missing`: because what it is about does not exist."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(without_keys(message))
        self.missing = missing


@dataclass(frozen=True, slots=True)
class Change:
    """The record as it will be (None: none), and what the list of changes says.

    `checked`: it must fit the file. `priced`: what its budgets of money bound must have a price.
    """

    after: StoredTenant | None
    action: str
    detail: Mapping[str, object] = field(default_factory=dict)
    checked: bool = False
    priced: bool = False


def named(name: str, what: str) -> str:
    """A name that may stand in the file too. Raises `ChangeRefused`."""
    if not NAME.fullmatch(name) or holds_key(name):
        raise ChangeRefused(
            f"the name of a {what} is 1 to 64 letters, digits, dots, dashes, underscores; a key is no name"
        )
    return name


def reasoned(reason: str) -> str:
    """A reason worth keeping. Raises `ChangeRefused`."""
    if not reason.strip() or len(reason) > MAX_TEXT or holds_key(reason):
        raise ChangeRefused(f"the reason is needed: 1 to {MAX_TEXT} characters, and no key in it")
    return reason.strip()


def created(record: StoredTenant | None, name: str, settings: dict[str, Any], now: float) -> Change:
    """A tenant of the store."""
    if record is not None:
        raise ChangeRefused(f"the store has a record of {name!r} already; change it, or delete it first")
    after = StoredTenant(named(name, "tenant"), _settings(settings), created_at=now)
    return Change(after, "tenant created", {"settings": settings}, checked=True, priced=True)


def altered(record: StoredTenant, settings: dict[str, Any]) -> Change:
    """Other values for the settings that are given; None takes one away."""
    if record.settings is None:
        raise ChangeRefused(f"the settings of {record.name!r} stand in the file; change them there")
    merged = {**record.settings, **_settings(settings)}
    after = {field: value for field, value in merged.items() if value is not None}
    return Change(_with(record, settings=after), "tenant changed", {"settings": settings}, checked=True, priced=True)


def deleted(record: StoredTenant) -> Change:
    """No record: no tenant of the store, or nothing added to the file's."""
    organisation = (record.settings or {}).get("organisation")
    return Change(None, DELETED, {"organisation": organisation, "keys": [key.name for key in record.keys]})


def switched(record: StoredTenant, on: bool) -> Change:
    """A tenant whose keys are refused, or are not any more."""
    return Change(_with(record, disabled=not on), "tenant enabled" if on else "tenant disabled")


def key_created(
    record: StoredTenant, name: str, digest: str, until: float | None, budgets: tuple[dict[str, Any], ...], now: float,
    in_file: Collection[str] = (),
) -> Change:  # fmt: skip
    """One more key. `in_file`: names of the tenant's keys there."""
    if named(name, "key") in in_file or record.key(name) is not None:
        raise ChangeRefused(f"{record.name!r} has a key {name!r} already; rotate it, or choose another name")
    if until is not None and until <= now:
        raise ChangeRefused(f"the key would expire at {told(until)}, which is past")
    key = StoredKey(name, (Secret(digest, now),), now, until, budgets)
    detail = {"key": name, "expires_at": until and told(until), "budgets": list(budgets)}
    return Change(
        _with(record, keys=(*record.keys, key)), "key created", detail, checked=bool(budgets), priced=bool(budgets)
    )


def key_rotated(record: StoredTenant, name: str, digest: str, overlap_seconds: float, now: float) -> Change:
    """A new key under the name of an old one, which holds for some time more. Budgets of the name go on."""
    key = _key(record, name)
    if key.until is not None and key.until <= now:
        raise ChangeRefused(f"the key {name!r} has expired; give it another end first, with: keys expire")
    if overlap_seconds < 0:
        raise ChangeRefused("the overlap must not be below zero")
    until = now + overlap_seconds
    old = [msgspec.structs.replace(each, until=min(each.until or until, until)) for each in key.secrets]
    held = tuple([each for each in old if (each.until or 0) > now])
    after = msgspec.structs.replace(key, secrets=(Secret(digest, now), *held))
    return Change(_with_key(record, after), "key rotated", {"key": name, "old_until": told(until)})


def key_expires(record: StoredTenant, name: str, until: float | None) -> Change:
    """Another end for a key; None: no end."""
    after = msgspec.structs.replace(_key(record, name), until=until)
    return Change(_with_key(record, after), "key expires", {"key": name, "expires_at": until and told(until)})


def key_switched(record: StoredTenant, name: str, on: bool, in_file: Collection[str] = ()) -> Change:
    """A key that is refused, or is not any more; of the store or of the file."""
    if name not in in_file:
        _key(record, name)
    names = {*record.disabled_keys} - {name} if on else {*record.disabled_keys, name}
    after = _with(record, disabled_keys=tuple(sorted(names)))
    return Change(after, "key enabled" if on else "key disabled", {"key": name})


def key_deleted(record: StoredTenant, name: str, in_file: Collection[str] = ()) -> Change:
    """No such key in the store any more. What is switched off in the file stays so."""
    _key(record, name)
    keys = tuple([key for key in record.keys if key.name != name])
    boosts = tuple([boost for boost in record.boosts if boost.key != name])
    off = tuple([other for other in record.disabled_keys if other != name or name in in_file])
    return Change(_with(record, keys=keys, boosts=boosts, disabled_keys=off), "key deleted", {"key": name})


def boosted(record: StoredTenant, boost: Boost, reason: str | None, now: float) -> Change:
    """Another amount for a limit until a moment, in the place of an earlier boost of it."""
    if boost.until <= now:
        raise ChangeRefused(f"the boost would end at {told(boost.until)}, which is past")
    others = _others(record, boost.limit, *boost.of)
    detail = {name: value for name, value in boost.told.items() if value is not None}
    said = {**detail, "until": told(boost.until), "reason": reason}
    return Change(_with(record, boosts=(*others, boost)), "limit boosted", said, checked=True)


def boost_ended(record: StoredTenant, limit: str, key: str | None = None, session: str | None = None) -> Change:
    """The limit as configured, from now on."""
    others = _others(record, limit, key, session)
    if others == record.boosts:
        raise ChangeRefused(f"no boost of {limit!r} is in force", missing=True)
    said = {
        name: value for name, value in {"limit": limit, "key": key, "session": session}.items() if value is not None
    }
    return Change(_with(record, boosts=others), "boost ended", said)


def tidied(record: StoredTenant, now: float) -> StoredTenant:
    """Without what has had its time: boosts that ended, keys that were replaced."""
    boosts = tuple([boost for boost in record.boosts if boost.until > now])
    keys = tuple(
        [
            msgspec.structs.replace(key, secrets=tuple([each for each in key.secrets if (each.until or now + 1) > now]))
            for key in record.keys
        ]
    )
    return _with(record, boosts=boosts, keys=keys)


def _settings(settings: dict[str, Any]) -> dict[str, Any]:
    if {"keys", "name"} & settings.keys():
        raise ChangeRefused("settings have neither a name nor keys; make keys with: keys create")
    if holds_key(msgspec.json.encode(settings).decode()):
        raise ChangeRefused("something in the settings looks like a key; keys never stand there")
    return settings


def _key(record: StoredTenant, name: str) -> StoredKey:
    if (key := record.key(name)) is None:
        known = ", ".join(key.name for key in record.keys) or "none"
        raise ChangeRefused(f"{record.name!r} has no key {name!r} in the store; there: {known}", missing=True)
    return key


def _others(record: StoredTenant, limit: str, key: str | None, session: str | None) -> tuple[Boost, ...]:
    return tuple([boost for boost in record.boosts if (boost.limit, *boost.of) != (limit, key, session)])


def _with_key(record: StoredTenant, key: StoredKey) -> StoredTenant:
    return _with(record, keys=tuple([key if key.name == each.name else each for each in record.keys]))


def _with(record: StoredTenant, **fields: object) -> StoredTenant:
    return msgspec.structs.replace(record, **fields)
