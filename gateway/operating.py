"""What the commands `tenants`, `keys` and `limits` share: sitting down at the desk, and showing what is there.

Rule: a command reads the store that the gateways use, the embedded one included, and never makes a secret of its own.
"""

import getpass
import json
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from config.document import Document
from config.problems import ConfigError
from gateway.clock import wall
from gateway.command import configuration, process_settings, run, stop
from gateway.desk import Desk
from gateway.limit_desk import LimitDesk
from gateway.moments import moment_of
from gateway.secret import known_secret
from gateway.starting import using

Who = Annotated[
    str | None, typer.Option("--as", envvar="KVGATE_OPERATOR", help="Who does this; default: your user name.")
]
AsJson = Annotated[bool, typer.Option("--json", help="As JSON instead of a table.")]
MAX_TEXT_BYTES: Final = 1_000_000


@asynccontextmanager
async def _sitting(file: Path, who: str | None) -> AsyncIterator[tuple[Desk, LimitDesk]]:
    settings, config = process_settings(), configuration(file)
    async with using(settings) as store:
        desk = Desk(lambda: config, store, lambda: known_secret(settings), who or user_name(), "cli")
        yield desk, LimitDesk(desk, store)


def at_the_desk(file: Path, who: str | None, work: Callable[[Desk, LimitDesk], Coroutine[None, None, None]]) -> None:
    """Run work at the desk; what is refused is one line and exit code 1."""

    async def sit() -> None:
        async with _sitting(file, who) as (desk, limits):
            await work(desk, limits)

    run(sit())


def user_name() -> str:
    """Who runs this process, as far as the system knows."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return f"uid {os.getuid()}"


def moment(option: str, written: str) -> float:
    """A moment that an option gives."""
    try:
        return moment_of(written, wall())
    except ValueError as error:
        stop(f"{option}: {error}")


def mapping(file: Path) -> dict[str, Any]:
    """The mapping in a YAML or JSON file, `-` for standard input."""
    try:
        text = typer.get_text_stream("stdin").read(MAX_TEXT_BYTES) if str(file) == "-" else file.read_text("utf-8")
        found: dict[str, Any] = Document(text).data
    except OSError as error:
        stop(f"{file}: {error.strerror}")
    except (ConfigError, UnicodeDecodeError):
        stop(f"{file}: expected a mapping of settings in YAML or JSON, as a tenant has them in the file")
    return found


def show(rows: Sequence[Mapping[str, object]], columns: Iterable[str], as_json: bool) -> None:
    """Print rows as a table, or as JSON with all they hold."""
    if as_json:
        typer.echo(json.dumps(rows, indent=2, default=str))
        return
    for line in table(rows, tuple(columns)):
        typer.echo(line)


def table(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> list[str]:
    """Lines with a head, columns as wide as they need to be."""
    cells = [columns, *([cell(row.get(name)) for name in columns] for row in rows)]
    widths = [max(len(line[at]) for line in cells) for at in range(len(columns))]
    return ["  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in cells]


def cell(value: object) -> str:
    """A value in a table; what is absent is a dash."""
    match value:
        case None | "":
            return "-"
        case bool():
            return "yes" if value else "no"
        case _:
            return str(value)
