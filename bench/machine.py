"""The machine under the measurement: which core does what, how busy others are, processes that end with us.

Rule: the gateway has one core for itself; the mock engine, the load and the store share another. This process runs on
the load's core, so whatever it starts is there too unless it is pinned elsewhere.
"""

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import NoReturn


class BenchError(Exception):
    """One line: what is in the way and what to do about it."""


def say(line: str) -> None:
    """One line to the person who waits."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def take_cores() -> int:
    """Move this process to the load's core, lift its file limit; the gateway's core is returned."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        raise BenchError("needs two cores: one for the gateway, one for the mock engine, the load and the store")
    os.sched_setaffinity(0, {cores[1]})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    signal.signal(signal.SIGTERM, _leave)
    return cores[0]


def _leave(signum: int, _: FrameType | None) -> NoReturn:
    """A signal unwinds the stack, so that every process started is stopped."""
    raise SystemExit(128 + signum)


@contextmanager
def running(
    command: Sequence[str], *, core: int | None = None, env: Mapping[str, str] | None = None, log: Path | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process for as long as the block lasts, pinned to a core, in a process group of its own."""
    pinned = command if core is None else ["taskset", "-c", str(core), *command]
    with open(log or os.devnull, "wb") as out:
        process = subprocess.Popen(pinned, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=out, process_group=0)
    try:
        yield process
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes], patience_seconds: float = 10.0) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(patience_seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_until_quiet(patience_seconds: float, most_cores: float = 0.25) -> None:
    """Return once the machine uses fewer than `most_cores`, or when patience ends."""
    deadline = time.monotonic() + patience_seconds
    while time.monotonic() < deadline and _busy_cores(0.5) > most_cores:
        time.sleep(0.5)


def _busy_cores(over_seconds: float) -> float:
    before = busy_seconds(Path("/proc/stat").read_text())
    time.sleep(over_seconds)
    return (busy_seconds(Path("/proc/stat").read_text()) - before) / over_seconds


def busy_seconds(stat: str) -> float:
    """CPU seconds of all cores since boot in `/proc/stat`, idle and waiting for disks left out."""
    ticks = [int(word) for word in stat.splitlines()[0].split()[1:9]]
    return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf("SC_CLK_TCK")
