"""`kvgate limits`: how limits stand, more for a while, and a counter put right."""

from typing import Annotated

import typer

from budgets.limit import units
from gateway.command import DEFAULT_FILE, File
from gateway.desk import Desk
from gateway.limit_desk import LimitDesk, Place
from gateway.moments import told
from gateway.operating import AsJson, Who, at_the_desk, moment, show
from gateway.statements import line

app = typer.Typer(no_args_is_help=True, help="Limits of tenants and keys: show, boost, correct.")

Tenant = Annotated[str, typer.Option(help="Whose limit it is.")]
Limit = Annotated[str, typer.Option(help="Its name, as answers and `limits list` have it.")]
Key = Annotated[str | None, typer.Option(help="A limit of this key of the tenant.")]
Session = Annotated[str | None, typer.Option(help="A limit of this session of the tenant.")]
Sessions = Annotated[str | None, typer.Option(help="A limit of this session of the tenant; '*': of each of them.")]
Organisation = Annotated[bool, typer.Option("--organisation", help="A limit of the tenant's organisation.")]
COLUMNS = ("name", "scope", "dimension", "mode", "limit", "used", "reserved", "remaining", "resets_at")


@app.command("list")
def list_limits(
    tenant: Tenant, key: Key = None, session: Session = None, config: File = DEFAULT_FILE, as_json: AsJson = False
) -> None:
    """Show how the limits of a tenant stand, boosts included; those of a key and of a session where one is named."""

    async def work(_: Desk, limits: LimitDesk) -> None:
        show([line(account) for account in await limits.accounts(tenant, key, session)], COLUMNS, as_json)

    at_the_desk(config, None, work)


@app.command("boost")
def boost(
    tenant: Tenant,
    limit: Limit,
    amount: Annotated[str, typer.Option(help="The amount instead of the configured one, such as 400k.")],
    until: Annotated[str, typer.Option(help="When it ends: 2h, or 2026-12-31T18:00+01:00.")],
    burst: Annotated[str | None, typer.Option(help="Of a rate, at once; default: grows as the amount does.")] = None,
    key: Key = None,
    session: Sessions = None,
    organisation: Organisation = False,
    reason: Annotated[str | None, typer.Option(help="Kept with the change.")] = None,
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Give a limit another amount until a moment. What was used stays used."""
    ends = moment("--until", until)

    async def work(_: Desk, limits: LimitDesk) -> None:
        place = Place(tenant, limit, key, organisation, session)
        await limits.boost(place, amount, ends, burst, reason)
        typer.echo(f"{tenant}, {of(place)}: {amount} until {told(ends)}", err=True)

    at_the_desk(config, who, work)


@app.command("end-boost")
def end_boost(
    tenant: Tenant,
    limit: Limit,
    key: Key = None,
    session: Sessions = None,
    organisation: Organisation = False,
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """End a boost now."""

    async def work(_: Desk, limits: LimitDesk) -> None:
        place = Place(tenant, limit, key, organisation, session)
        await limits.end_boost(place)
        typer.echo(f"{tenant}, {of(place)}: as configured", err=True)

    at_the_desk(config, who, work)


@app.command("set-used")
def set_used(
    tenant: Tenant,
    limit: Limit,
    used: Annotated[str, typer.Option(help="What was used, such as 120k; 0 for nothing.")],
    reason: Annotated[str, typer.Option(help="Why; kept with the change.")],
    key: Key = None,
    session: Session = None,
    organisation: Organisation = False,
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Say how much of a limit was used. What running calls have reserved stays reserved."""

    async def work(_: Desk, limits: LimitDesk) -> None:
        place = Place(tenant, limit, key, organisation, session)
        found, before = await limits.set_used(place, used, reason)
        was, held = units(found.dimension, before.before), units(found.dimension, before.reserved)
        typer.echo(f"{tenant}, {of(place)}: used {used}, was {was}; {held} reserved by calls that run", err=True)

    at_the_desk(config, who, work)


def of(place: Place) -> str:
    """A limit, with whose it is where it is not the tenant's own."""
    whose = {"organisation": "its organisation", "key": f"key {place.key}", "session": f"session {place.session}"}
    return f"{place.limit} of {whose[place.level]}" if place.level in whose else place.limit
