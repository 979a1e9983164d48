"""What other commands want of the store's tenants: whether they fit the file, and what holds for one of them.

Rule: a tenant of the file is found without the store.
"""

import asyncio

import typer

from config.effective import Effective
from config.model import Config
from gateway.clock import wall
from gateway.command import ERRORS, process_settings, run, stop
from gateway.keys import without_keys
from gateway.limit_desk import caller_of
from gateway.starting import using
from gateway.tenant_book import TenantBook
from gateway.tenant_record import StoredTenant, organisation_of
from gateway.tenant_views import joined_for_operators, problem_of


def check(config: Config) -> int:
    """How many tenants the store has; ends with a line for each that cannot be used under this configuration."""
    records: list[StoredTenant] = []

    async def read() -> None:
        async with using(process_settings()) as store:
            found = [record async for record in TenantBook(store).records()]
            records.extend([record for record in found if organisation_of(record.name) is None])

    run(read())
    wrong = [(record.name, why) for record in records if (why := problem_of(config, record)) is not None]
    for name, why in sorted(wrong):
        typer.echo(f"the store, tenant {name}: {why}", err=True)
    if wrong:
        raise typer.Exit(1)
    return len(records)


def holding(config: Config, name: str) -> Effective:
    """What holds for a tenant of the file, or else of the store."""
    if name in config.tenants:
        return config.effective(config.tenants[name])
    try:
        return asyncio.run(_in_store(config, name))
    except ERRORS as error:
        known = ", ".join(config.tenants) or "none"
        stop(without_keys(f"there is no tenant {name!r} in the file; known: {known}. In the store: {error}"))


async def _in_store(config: Config, name: str) -> Effective:
    async with using(process_settings()) as store:
        record = (await TenantBook(store).find(name)).record
    return caller_of(joined_for_operators(config, name, record), None, wall()).may
