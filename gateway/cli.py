"""The command line.

Rule: what can go wrong at a start is one line that says what and how to mend it, with an exit code that is not zero,
and never a traceback. Commands of other packages join through the entry point group `kvgate.commands`.
"""

import asyncio
import gc
import json
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated

import typer

from config import load as loading
from config.model import Config
from config.settings import Settings
from gateway import cli_explain, cli_keys, cli_limits, cli_tenants, explain, parquet, store_tenants, usage_report
from gateway import demo as demonstration
from gateway.app import Gateway, running
from gateway.command import File, configuration, content, process_settings, run, stop
from gateway.errors import Fault
from gateway.logs import configure
from gateway.payers import payers
from gateway.reloading import Reloading, State, state_of
from gateway.starting import using
from gateway.stopping import Stopping
from gateway.supervisor import PARENT_PIPE, supervising
from gateway.usage_report import COLUMNS, Row

COMMANDS = "kvgate.commands"
GARBAGE_THRESHOLDS = (20_000, 20, 20)

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
app.command("explain")(cli_explain.explain)
app.add_typer(cli_tenants.app, name="tenants")
app.add_typer(cli_keys.app, name="keys")
app.add_typer(cli_limits.app, name="limits")


@app.command()
def serve(config: File = Path("kvgate.yaml")) -> None:
    """Run the gateway. Listeners, store and secret come from KVGATE_* environment variables."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can reload, being told to must not end it
    settings = process_settings()
    known = Known.read(config)
    configure(settings.log_level)
    if settings.workers > 1:
        run(_supervise(settings, config.absolute()))
    else:
        run(_serve(known, settings, lambda _: None))


@app.command(hidden=True)
def worker(config: File = Path("kvgate.yaml")) -> None:
    """One of several processes on a port; started by `serve`."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # until it can reload, being told to must not end it
    settings = process_settings()
    known = Known.read(config)
    configure(settings.log_level)
    run(_serve(known, settings, lambda _: None, int(os.environ[PARENT_PIPE])))


@app.command()
def demo(
    speed: Annotated[float, typer.Option(help="How much faster than their GPU the emulated engines run.")] = 1.0,
) -> None:
    """Run everything on this machine: a store, four emulated engines in two pools, the gateway."""
    settings = demonstration.own_folder(process_settings())
    known = Known.read(demonstration.CONFIG_FILE)
    loaded = known.config
    configure("warning" if "log_level" not in settings.model_fields_set else settings.log_level)

    def welcome(gateway: Gateway) -> None:
        typer.echo(demonstration.welcome(loaded, gateway.port, gateway.admin_port))

    try:
        with demonstration.engines(loaded, settings.data_dir / "engines", speed):
            run(_serve(known, settings, welcome))
    except demonstration.DemoError as error:
        stop(str(error))


@app.command()
def check(
    file: Annotated[Path, typer.Argument(help="The configuration file.")],
    store: Annotated[bool, typer.Option("--store", help="Check the tenants of the store against it too.")] = False,
) -> None:
    """Check a configuration file; every problem with its place and its mend."""
    loaded = configuration(file)
    if store:
        typer.echo(f"the store: right. {_so_many(store_tenants.check(loaded), 'tenant')}.")
    parts = {"model": loaded.models, "pool": loaded.pools, "tier": loaded.tiers, "tenant": loaded.tenants}
    counts = ", ".join(_so_many(len(entries), part) for part, entries in parts.items())
    typer.echo(f"{file}: right. {counts}.")


def _so_many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration file, for editors."""
    typer.echo(json.dumps(loading.schema(), indent=2))


@app.command()
def plan(
    request: Annotated[Path, typer.Argument(help="A request body, as a client would send it.")],
    tenant: Annotated[str, typer.Option(help="Whose limits and policies hold.")],
    config: File = Path("kvgate.yaml"),
) -> None:
    """Show the edits that a request would get. Nothing is sent, nothing is stored."""
    loaded, body = configuration(config), content(request)
    may = store_tenants.holding(loaded, tenant)
    try:
        typer.echo(asyncio.run(explain.edits(loaded, tenant, body, may)))
    except Fault as fault:
        stop(fault.message)


@app.command()
def usage(
    config: File = Path("kvgate.yaml"),
    tenant: Annotated[str | None, typer.Option(help="Of this tenant only.")] = None,
    since: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The first day (UTC).")] = None,
    until: Annotated[datetime | None, typer.Option(formats=["%Y-%m-%d"], help="The last day (UTC).")] = None,
    by: Annotated[str, typer.Option(help=f"Columns to sum up by, '' for every call: {', '.join(COLUMNS)}.")] = (
        "tenant,model,day"
    ),
    form: Annotated[usage_report.Format, typer.Option("--format", help="csv, jsonl or parquet.")] = "csv",
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Into this file.")] = None,
) -> None:
    """Report what was charged, from the records of settled calls."""
    settings, loaded = process_settings(), configuration(config)
    if form == "parquet" and output is None:
        stop("--format parquet needs --output FILE: it is no text")
    if since is not None and until is not None and until < since:
        stop(f"--until {until:%Y-%m-%d} is before --since {since:%Y-%m-%d}")
    columns = [name for name in COLUMNS if name in by.split(",")]
    if unknown := {name for name in by.split(",") if name} - {*columns}:
        stop(f"--by {', '.join(sorted(unknown))}: choose from {', '.join(COLUMNS)}")

    async def told() -> None:
        async with using(settings) as store:
            span = usage_report.Span.of_days(since, until)
            known = await payers(loaded, store)
            if tenant is not None and tenant not in known:
                stop(f"there is no tenant {tenant!r}; known: {', '.join(sorted(known)) or 'none'}")
            asked = list(known.values()) if tenant is None else [known[tenant]]
            rows = await usage_report.report(store, asked, span, columns)
        export(rows, form, output, usage_report.blank(columns))

    run(told())


def export(rows: Sequence[Row], form: usage_report.Format, output: Path | None, blank: Row) -> None:
    """The rows to a file, or as text to where this program prints; with the columns of a blank one."""
    try:
        if form == "parquet" and output is not None:
            parquet.write(rows, output, blank)
        elif output is not None:
            output.write_text("".join(f"{line}\n" for line in usage_report.written(rows, form, blank)), "utf-8")
        else:
            for line in usage_report.written(rows, form, blank):
                typer.echo(line)
    except parquet.NoParquetError as error:
        stop(str(error))
    except OSError as error:
        stop(f"{output}: {error.strerror}")


def main() -> None:
    """The console script."""
    for entry in sorted(entry_points(group=COMMANDS), key=lambda entry: entry.name):
        app.command(entry.name)(entry.load())
    app()


@dataclass(frozen=True, slots=True)
class Known:
    """A configuration, the file that it was read from, and the state of the file just before."""

    config: Config
    file: Path
    seen: State | None

    @classmethod
    def read(cls, file: Path) -> "Known":
        """Every problem is printed, then the program ends."""
        seen = state_of(file)
        return cls(configuration(file), file, seen)


async def _serve(
    known: Known, settings: Settings, started: Callable[[Gateway], None], parent: int | None = None
) -> None:
    stopping = Stopping()
    async with running(known.config, settings) as gateway:
        reloading = Reloading(known.file, gateway.put, gateway.metrics, known.seen)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloading.ask)
        gateway.background.start(reloading.watch(), name="reload")
        stopping.hurry = gateway.stop_now
        if parent is not None:
            stopping.with_the_end_of(parent)
        started(gateway)
        collect_seldom()
        await stopping.wait()


async def _supervise(settings: Settings, file: Path) -> None:
    stopping = Stopping()
    async with supervising(file, settings) as supervisor:
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, supervisor.reload)
        stopping.hurry = supervisor.hurry
        await stopping.wait()


def collect_seldom() -> None:
    """What exists now lives as long as the process: never look at it again, and look at the rest less often.

    Calls leave no cycles behind, so the collector would only walk objects that are in use.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
