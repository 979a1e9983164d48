"""`make soak`: both parts run, the end says how each of them ended and why, and a failure of either is one of all."""

import os
import socket
import subprocess
from contextlib import ExitStack
from pathlib import Path

import aiohttp
import pytest

from bench.soak_house import House

ROOT = Path(__file__).parents[2]
PART = """#!/bin/sh
echo "$@" >> {told}
case $2 in bench.soak) exit {load} ;; bench.kills) exit {kills} ;; *) exit 9 ;; esac
"""


def soak(folder: Path, load: int, kills: int) -> tuple[int, str, list[str]]:
    """Exit code, output and commands of `make soak` whose parts only end as they are told to."""
    told, program = folder / "told", folder / "bin" / "python"
    program.parent.mkdir()
    program.write_text(PART.format(told=told, load=load, kills=kills))
    program.chmod(0o755)
    (folder / ".installed-python3").touch()
    made = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "-C", str(ROOT), "soak", f"VENV={folder}", "PYTHON=python3", "MINUTES=3", "SCHEDULES=7"]
    ended = subprocess.run(command, env=made, capture_output=True, text=True, check=False)
    return ended.returncode, ended.stdout, told.read_text().splitlines()


@pytest.mark.parametrize(("load", "kills"), [(0, 0), (1, 0), (0, 1), (1, 1)])
def test_the_whole_ends_as_its_parts_do(tmp_path: Path, load: int, kills: int) -> None:
    code, said, commands = soak(tmp_path, load, kills)
    assert commands == ["-m bench.soak --minutes 3", "-m bench.kills --schedules 7"]
    assert (code == 0) is (load == kills == 0)
    assert f"load with faults: {'not clean' if load else 'clean'}; kills: {'not right' if kills else 'right'}" in said


def test_every_command_is_made_whatever_files_there_are() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = [line for line in makefile.splitlines() if line.startswith(".PHONY:")]
    commands = {line.partition(":")[0] for line in makefile.splitlines() if ": " in line and " ## " in line}
    assert commands <= set(phony.split())


async def test_a_gateway_that_does_not_start_is_told_with_its_reason(tmp_path: Path) -> None:
    with ExitStack() as ends, socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port: int = taken.getsockname()[1]
        house = House(tmp_path, port - 1, speed=100.0)  # its admin port is the next one
        house.start(ends)
        async with aiohttp.ClientSession() as http:
            with pytest.raises(SystemExit, match=f"the gateway did not start: .*cannot listen on 127.0.0.1:{port}"):
                await house.ready(http)
