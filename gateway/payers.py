"""Who may have been charged: the tenants of the file, those of the store, and those that were deleted.

Rule: what was used outlives the tenant, so a report finds it under the name and the organisation that it had.
"""

from dataclasses import dataclass

from config.model import Config
from gateway.store import Store
from gateway.tenant_book import TenantBook
from gateway.tenant_changes import DELETED


@dataclass(frozen=True, slots=True)
class Payer:
    """A tenant by name, and whose budgets it shared."""

    name: str
    organisation: str | None = None


async def payers(config: Config, store: Store) -> dict[str, Payer]:
    """All of them by name; of a name that was given twice, the one that has it now. Raises `StoreError`."""
    book = TenantBook(store)
    gone = [entry for entry in await book.changes(most=None) if entry.action == DELETED]
    found = {entry.tenant: Payer(entry.tenant, entry.detail.get("organisation")) for entry in reversed(gone)}
    async for record in book.records():
        if record.settings is not None:
            found[record.name] = Payer(record.name, record.settings.get("organisation"))
    return found | {tenant.name: Payer(tenant.name, tenant.organisation) for tenant in config.tenants.values()}
