"""What the commands of the command line share: their file, their settings, and how they end.

Rule: what goes wrong is one line that says what and how to mend it, with an exit code that is not zero, and never a
traceback.
"""

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from config import load as loading
from config.model import Config
from config.problems import ConfigError
from config.settings import Settings, from_environment
from gateway.demo import DemoError
from gateway.embedded import EmbeddedError
from gateway.secret import SecretError
from gateway.starting import StartError
from gateway.store import StoreError
from gateway.tenant_changes import ChangeRefused
from gateway.vault import KeysError

ERRORS = (StartError, EmbeddedError, StoreError, SecretError, KeysError, DemoError, ChangeRefused)

File = Annotated[Path, typer.Option("--config", "-c", help="The configuration file.", envvar="KVGATE_CONFIG")]
DEFAULT_FILE = Path("kvgate.yaml")


def run(work: Coroutine[None, None, None]) -> None:
    """Run on the fastest loop there is; a start that fails is one line."""
    try:
        import uvloop

        factory: Callable[[], asyncio.AbstractEventLoop] | None = uvloop.new_event_loop
    except ImportError:
        factory = None
    try:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(work)
    except ERRORS as error:
        stop(str(error))


def configuration(file: Path) -> Config:
    """The checked configuration; every problem is printed, then the program ends."""
    try:
        return loading.load(file)
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(f"{file}: {problem}" if problem.place or problem.line else str(problem), err=True)
        raise typer.Exit(1) from None


def process_settings() -> Settings:
    """The KVGATE_* settings; a wrong one is named by its variable."""
    try:
        return from_environment()
    except ConfigError as error:
        for problem in error.problems:
            typer.echo(str(problem), err=True)
        raise typer.Exit(1) from None


def content(file: Path) -> bytes:
    """What stands in a file."""
    try:
        return file.read_bytes()
    except OSError as error:
        stop(f"{file}: {error.strerror}")


def stop(message: str) -> NoReturn:
    """End with one line and exit code 1."""
    typer.echo(message, err=True)
    raise typer.Exit(1)
