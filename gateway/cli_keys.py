"""`kvgate keys`: make, replace, end and switch off keys. A key is printed once, alone on standard output."""

from pathlib import Path
from typing import Annotated

import typer

from config.units import parse_duration
from gateway.command import DEFAULT_FILE, File, stop
from gateway.desk import Desk
from gateway.limit_desk import LimitDesk
from gateway.operating import AsJson, Who, at_the_desk, mapping, moment, show

app = typer.Typer(no_args_is_help=True, help="Keys of tenants: create, rotate, expire, switch off.")

Tenant = Annotated[str, typer.Argument(help="Whose key it is.")]
Name = Annotated[str, typer.Argument(help="The key's name within its tenant.")]
ONCE = "this is the only time that the key is shown"


@app.command("list")
def list_keys(tenant: Tenant, config: File = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Show the keys of a tenant: names and states, never the keys."""

    async def work(desk: Desk, _: LimitDesk) -> None:
        keys = (await desk.tenant(tenant))["keys"]
        assert isinstance(keys, list)
        show(keys, ("name", "from", "state", "created_at", "rotated_at", "old_until", "expires_at"), as_json)

    at_the_desk(config, None, work)


@app.command("create")
def create(
    tenant: Tenant,
    name: Name,
    expires: Annotated[str | None, typer.Option(help="When it ends: 90d, or 2026-12-31.")] = None,
    settings: Annotated[Path | None, typer.Option(help="A YAML or JSON file with budgets of the key.")] = None,
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Make a key for a tenant and print it."""
    until = moment("--expires", expires) if expires is not None else None
    told = mapping(settings) if settings is not None else {}
    if set(told) - {"budgets"} or not isinstance(told.get("budgets", []), list):
        stop(f"{settings}: expected budgets, a list as a key has it in the configuration")

    async def work(desk: Desk, _: LimitDesk) -> None:
        key = await desk.create_key(tenant, name, until, tuple(told.get("budgets", ())))
        typer.echo(key)
        typer.echo(f"{tenant}, {name}: created; {ONCE}", err=True)

    at_the_desk(config, who, work)


@app.command("rotate")
def rotate(
    tenant: Tenant,
    name: Name,
    overlap: Annotated[str, typer.Option(help="How long the old key holds beside the new one.")] = "24h",
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Make a new key in the place of an old one and print it. Budgets and records of the name go on."""
    try:
        seconds = parse_duration(overlap)
    except ValueError as error:
        stop(f"--overlap: {error}")

    async def work(desk: Desk, _: LimitDesk) -> None:
        typer.echo(await desk.rotate(tenant, name, seconds))
        typer.echo(f"{tenant}, {name}: rotated; the old key holds for {overlap}; {ONCE}", err=True)

    at_the_desk(config, who, work)


@app.command("expire")
def expire(
    tenant: Tenant,
    name: Name,
    at: Annotated[str, typer.Option(help="When: 2h, or 2026-12-31, or never.")] = "0s",
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Let a key end now, at a moment, or never."""
    until = None if at == "never" else moment("--at", at)

    async def work(desk: Desk, _: LimitDesk) -> None:
        await desk.expire(tenant, name, until)
        typer.echo(f"{tenant}, {name}: expiry set", err=True)

    at_the_desk(config, who, work)


@app.command("disable")
def disable(tenant: Tenant, name: Name, config: File = DEFAULT_FILE, who: Who = None) -> None:
    """Refuse a key, of the file or of the store."""
    _switch(tenant, name, False, config, who)


@app.command("enable")
def enable(tenant: Tenant, name: Name, config: File = DEFAULT_FILE, who: Who = None) -> None:
    """Accept a key again."""
    _switch(tenant, name, True, config, who)


@app.command("delete")
def delete(tenant: Tenant, name: Name, config: File = DEFAULT_FILE, who: Who = None) -> None:
    """Forget a key of the store."""

    async def work(desk: Desk, _: LimitDesk) -> None:
        await desk.delete_key(tenant, name)
        typer.echo(f"{tenant}, {name}: deleted", err=True)

    at_the_desk(config, who, work)


def _switch(tenant: str, name: str, on: bool, config: Path, who: str | None) -> None:
    async def work(desk: Desk, _: LimitDesk) -> None:
        await desk.switch_key(tenant, name, on)
        typer.echo(f"{tenant}, {name}: {'enabled' if on else 'disabled'}", err=True)

    at_the_desk(config, who, work)
