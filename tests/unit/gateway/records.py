"""Records of tenants as a store would have them, made by the functions that operators' changes go through."""

from typing import Any

from gateway import tenant_changes
from gateway.keys import Digests
from gateway.roster import Roster
from gateway.tenant_book import News
from gateway.tenant_record import StoredTenant
from tests.unit.gateway.samples import SECRET

STORE_KEY = "sk-kvg-" + "k" * 43
SECOND_KEY = "sk-kvg-" + "m" * 43
NOW = 1_000.0


def digest(key: str = STORE_KEY) -> str:
    return Digests(SECRET).of(key.encode()).hex()


def stored(name: str = "beta", **settings: Any) -> StoredTenant:
    """A tenant of the store with one key, `main`."""
    made = tenant_changes.created(None, name, {"tier": "standard", **settings}, NOW).after
    assert made is not None
    return with_key(made)


def with_key(
    record: StoredTenant, name: str = "main", key: str = STORE_KEY, until: float | None = None, budget: Any = None
) -> StoredTenant:
    budgets = (budget,) if budget else ()
    made = tenant_changes.key_created(record, name, digest(key), until, budgets, NOW).after
    assert made is not None
    return made


def roster(*records: StoredTenant) -> Roster:
    """What a gateway knows that has just read these."""
    made = Roster()
    made.take(News("1-1", "", True, {record.name: record for record in records}))
    return made
