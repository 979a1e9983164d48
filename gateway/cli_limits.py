"""`kvgate limits`: how limits stand, more for a while, and a counter put right."""

from typing import Annotated

import typer

from budgets.limit import units
from gateway.command import DEFAULT_FILE, File, stop
from gateway.desk import Desk
from gateway.limit_desk import LimitDesk, Place
from gateway.moments import told
from gateway.operating import AsJson, Who, at_the_desk, moment, show
from gateway.statements import line

app = typer.Typer(no_args_is_help=True, help="Limits of tenants and keys: show, boost, correct.")

Tenant = Annotated[str, typer.Option(help="Whose limit it is.")]
Limit = Annotated[str, typer.Option(help="Its name, as answers and `limits list` have it.")]
Key = Annotated[str | None, typer.Option(help="A limit of this key of the tenant.")]
COLUMNS = ("name", "scope", "dimension", "mode", "limit", "used", "reserved", "remaining", "resets_at")


@app.command("list")
def list_limits(tenant: Tenant, key: Key = None, config: File = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Show how the limits of a tenant stand, boosts included; those of sessions are not among them."""

    async def work(_: Desk, limits: LimitDesk) -> None:
        show([line(account) for account in await limits.accounts(tenant, key)], COLUMNS, as_json)

    at_the_desk(config, None, work)


@app.command("boost")
def boost(
    tenant: Tenant,
    limit: Limit,
    amount: Annotated[str, typer.Option(help="The amount instead of the configured one, such as 400k.")],
    until: Annotated[str, typer.Option(help="When it ends: 2h, or 2026-12-31T18:00+01:00.")],
    burst: Annotated[str | None, typer.Option(help="Of a rate, at once; default: grows as the amount does.")] = None,
    key: Key = None,
    reason: Annotated[str | None, typer.Option(help="Kept with the change.")] = None,
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Give a limit another amount until a moment. What was used stays used."""
    ends = moment("--until", until)

    async def work(_: Desk, limits: LimitDesk) -> None:
        await limits.boost(Place(tenant, limit, key), amount, ends, burst, reason)
        typer.echo(f"{tenant}, {limit}: {amount} until {told(ends)}", err=True)

    at_the_desk(config, who, work)


@app.command("end-boost")
def end_boost(tenant: Tenant, limit: Limit, key: Key = None, config: File = DEFAULT_FILE, who: Who = None) -> None:
    """End a boost now."""

    async def work(_: Desk, limits: LimitDesk) -> None:
        await limits.end_boost(Place(tenant, limit, key))
        typer.echo(f"{tenant}, {limit}: as configured", err=True)

    at_the_desk(config, who, work)


@app.command("set-used")
def set_used(
    tenant: Tenant,
    limit: Limit,
    used: Annotated[str, typer.Option(help="What was used, such as 120k; 0 for nothing.")],
    reason: Annotated[str, typer.Option(help="Why; kept with the change.")],
    key: Key = None,
    organisation: Annotated[bool, typer.Option(help="A limit of the tenant's organisation.")] = False,
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Say how much of a limit was used. What running calls have reserved stays reserved."""
    if key is not None and organisation:
        stop("--key and --organisation name two limits; choose one")

    async def work(_: Desk, limits: LimitDesk) -> None:
        found, before = await limits.set_used(Place(tenant, limit, key, organisation), used, reason)
        was, held = units(found.dimension, before.before), units(found.dimension, before.reserved)
        typer.echo(f"{tenant}, {limit}: used {used}, was {was}; {held} reserved by calls that run", err=True)

    at_the_desk(config, who, work)
