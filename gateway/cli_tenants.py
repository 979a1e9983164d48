"""`kvgate tenants`: who there is, in the file and in the store, and what was changed."""

from pathlib import Path
from typing import Annotated, Any

import typer

from gateway.command import DEFAULT_FILE, File, stop
from gateway.desk import Desk
from gateway.limit_desk import LimitDesk
from gateway.moments import told
from gateway.operating import AsJson, Who, at_the_desk, mapping, show
from gateway.tenant_book import Entry

app = typer.Typer(no_args_is_help=True, help="Tenants: show, create, change, switch off.")

COLUMNS = ("name", "from", "tier", "organisation", "enabled", "keys", "boosts", "problem")

Tenant = Annotated[str, typer.Argument(help="The tenant's name.")]
TierOption = Annotated[str | None, typer.Option(help="Its tier, of the file.")]
OrganisationOption = Annotated[str | None, typer.Option(help="Its organisation, of the file.")]
ModelsOption = Annotated[str | None, typer.Option(help="Models it may use, with commas between; default: every one.")]
SettingsOption = Annotated[
    Path | None, typer.Option(help="A YAML or JSON file with more settings, as in the configuration; - for stdin.")
]


@app.command("list")
def list_tenants(config: File = DEFAULT_FILE, as_json: AsJson = False) -> None:
    """Show every tenant, of the file and of the store."""

    async def work(desk: Desk, _: LimitDesk) -> None:
        show(
            await desk.tenants(),
            ("name", "from", "tier", "organisation", "enabled", "keys", "boosts", "problem"),
            as_json,
        )

    at_the_desk(config, None, work)


@app.command("show")
def show_tenant(name: Tenant, config: File = DEFAULT_FILE) -> None:
    """Show all about one tenant, as JSON; of keys their names and states."""

    async def work(desk: Desk, _: LimitDesk) -> None:
        show([await desk.tenant(name)], (), True)

    at_the_desk(config, None, work)


@app.command("create")
def create(
    name: Tenant,
    tier: TierOption = None,
    organisation: OrganisationOption = None,
    models: ModelsOption = None,
    settings: SettingsOption = None,
    again: Annotated[bool, typer.Option("--again", help="Use the name of a tenant that was deleted.")] = False,
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Create a tenant that stands in the store only. Give it a key with: kvgate keys create."""
    wanted = _settings(tier, organisation, models, settings)

    async def work(desk: Desk, _: LimitDesk) -> None:
        await desk.create(name, wanted, again=again)
        typer.echo(f"{name}: created", err=True)

    at_the_desk(config, who, work)


@app.command("set")
def change(
    name: Tenant,
    tier: TierOption = None,
    organisation: OrganisationOption = None,
    models: ModelsOption = None,
    settings: SettingsOption = None,
    unset: Annotated[list[str] | None, typer.Option(help="A setting to take away; may be repeated.")] = None,
    config: File = DEFAULT_FILE,
    who: Who = None,
) -> None:
    """Change settings of a tenant of the store; what is not named stays as it is."""
    wanted: dict[str, Any] = dict.fromkeys(unset or []) | _settings(tier, organisation, models, settings)
    if not wanted:
        stop("nothing to change; name a setting")

    async def work(desk: Desk, _: LimitDesk) -> None:
        await desk.alter(name, wanted)
        typer.echo(f"{name}: changed", err=True)

    at_the_desk(config, who, work)


@app.command("disable")
def disable(name: Tenant, config: File = DEFAULT_FILE, who: Who = None) -> None:
    """Refuse all keys of a tenant, of the file or of the store."""
    _switch(name, False, config, who)


@app.command("enable")
def enable(name: Tenant, config: File = DEFAULT_FILE, who: Who = None) -> None:
    """Accept the keys of a tenant again."""
    _switch(name, True, config, who)


@app.command("delete")
def delete(name: Tenant, config: File = DEFAULT_FILE, who: Who = None) -> None:
    """Forget a tenant of the store with its keys, or what the store adds to one of the file."""

    async def work(desk: Desk, _: LimitDesk) -> None:
        await desk.delete(name)
        typer.echo(f"{name}: deleted", err=True)

    at_the_desk(config, who, work)


@app.command("changes")
def changes(
    name: Annotated[str | None, typer.Argument(help="Of this tenant only.")] = None,
    last: Annotated[int, typer.Option(min=1, help="How many, the newest first.")] = 50,
    config: File = DEFAULT_FILE,
    as_json: AsJson = False,
) -> None:
    """Show who changed what and when."""

    async def work(desk: Desk, _: LimitDesk) -> None:
        rows = [_row(entry, as_json) for entry in await desk.changes(name, last)]
        show(rows, ("at", "who", "via", "tenant", "what", "detail"), as_json)

    at_the_desk(config, None, work)


def _switch(name: str, on: bool, config: Path, who: str | None) -> None:
    async def work(desk: Desk, _: LimitDesk) -> None:
        await desk.switch(name, on)
        typer.echo(f"{name}: {'enabled' if on else 'disabled'}", err=True)

    at_the_desk(config, who, work)


def _settings(tier: str | None, organisation: str | None, models: str | None, file: Path | None) -> dict[str, Any]:
    """What the options say, over what the file says."""
    names = models.split(",") if models else None
    said: dict[str, Any] = {"tier": tier, "organisation": organisation, "models": names}
    return (mapping(file) if file is not None else {}) | {name: value for name, value in said.items() if value}


def _row(entry: Entry, whole: bool) -> dict[str, object]:
    told_at = told(entry.at_ms / 1000)
    short = ", ".join(f"{name}={value}" for name, value in entry.detail.items() if value not in (None, [], {}))
    named = {"at": told_at, "who": entry.who, "via": entry.via, "tenant": entry.tenant, "what": entry.action}
    return named | {"detail": entry.detail if whole else short}
