"""kvgate as a process of its own: started as a user starts it, read, signalled, and never left behind."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.house import document

FREE_PORTS = {"KVGATE_PORT": "0", "KVGATE_ADMIN_PORT": "0"}


def environment(folder: Path, **variables: str) -> dict[str, str]:
    """Nothing of the developer's own KVGATE_ settings; free ports; data in the folder."""
    plain = {name: value for name, value in os.environ.items() if not name.startswith("KVGATE_")}
    return plain | FREE_PORTS | {"KVGATE_DATA_DIR": str(folder / "data")} | variables


def file(folder: Path, pools: Mapping[str, Mapping[str, str]] | None = None) -> Path:
    """A configuration file for replicas by pool and name."""
    path = folder / "kvgate.yaml"
    path.write_text(yaml.safe_dump(document(pools or {"any": {"one": "http://127.0.0.1:1"}})))
    return path


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended."""

    code: int
    out: str
    lines: list[str]
    """What was said on standard error."""


async def run(folder: Path, *arguments: str, **variables: str) -> Ended:
    """Run a command to its end."""
    process = await started(folder, *arguments, **variables)
    out, err = await process.communicate()
    assert process.returncode is not None
    return Ended(process.returncode, out.decode(), err.decode().splitlines())


async def started(folder: Path, *arguments: str, **variables: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "gateway", *arguments),
        cwd=folder,
        env=environment(folder, **variables),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@dataclass(frozen=True, slots=True)
class Program:
    """A gateway that serves."""

    process: asyncio.subprocess.Process
    port: int
    admin_port: int

    async def ended(self) -> int:
        """Its exit code, once all it printed has been read."""
        await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode


@asynccontextmanager
async def serving(config: Path, **variables: str) -> AsyncIterator[Program]:
    """`kvgate serve`, ready; killed at the end if it still runs."""
    process = await started(config.parent, "serve", "-c", str(config), **variables)
    try:
        said = await announced(process)
        yield Program(process, said["port"], said["admin_port"])
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
            await process.communicate()


async def announced(process: asyncio.subprocess.Process) -> dict[str, int]:
    """The log line with the ports."""
    assert process.stderr is not None
    while line := await process.stderr.readline():
        said = json.loads(line)
        if said["event"] == "serving":
            return {name: said[name] for name in ("port", "admin_port")}
    raise AssertionError("it ended before it served")


def processes_about(folder: Path) -> list[int]:
    """The processes whose command line names the folder."""
    about = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = entry.read_bytes()
        except OSError:
            continue
        if os.fsencode(folder) in words:
            about.append(int(entry.parent.name))
    return about
