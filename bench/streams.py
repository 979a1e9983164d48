"""`bash bench/run.sh streams`: the memory of an open idle stream, and system calls per request and per chunk.

Rule: each count of open streams is measured in a gateway just started, so that no point of the line holds memory that
an earlier one left behind.
"""

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from bench.accounting import slope
from bench.gateways import Gateway, choose, installed
from bench.machine import BenchError, running, say, take_cores
from bench.rig import Rig, rig
from bench.scenarios import stream_options
from bench.strace import counts, data_calls

IDLE_SECONDS: Final = 600.0
"""Between two chunks of an idle stream: longer than any measurement."""
STREAMS_PER_SECOND: Final = 500


def main() -> None:
    """Both measurements for each gateway. A fault ends it with one line."""
    chosen = _arguments()
    try:
        core = take_cores()
        gateways = [gateway for gateway in choose(chosen.gateways) if gateway.command and installed(gateway)]
        with rig(core) as around:
            for gateway in gateways:
                _memory(around, gateway, [int(count) for count in chosen.open.split(",")])
                _system_calls(around, gateway, chosen.seconds)
    except BenchError as error:
        sys.exit(f"bench: {error}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.sh streams", description=__doc__.partition("\n")[0])
    parser.add_argument("gateways", nargs="*", default=["kvgate"], help="names of peers.toml")
    parser.add_argument(
        "--open", default="500,1000,2000,4000", help="how many streams to hold open, at least two counts"
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="how long to count system calls")
    return parser.parse_args()


def _memory(around: Rig, gateway: Gateway, numbers: Sequence[int]) -> None:
    points = [(float(number), _resident_bytes(around, gateway, number)) for number in numbers]
    told = ", ".join(f"{number:.0f}: {resident / 1e6:.1f} MB" for number, resident in points)
    say(f"{gateway.name}: resident memory by open idle streams: {told}")
    say(f"{gateway.name}: {slope(points) / 1000:.1f} kB per open idle stream; aim ≤ 40")


def _resident_bytes(around: Rig, gateway: Gateway, number: int) -> float:
    """With so many streams open, each after its first chunk. Raises `BenchError` if one is missing."""
    ramp_seconds = number / STREAMS_PER_SECOND
    options = [*stream_options(number, 2, IDLE_SECONDS), "-w", str(ramp_seconds), "-t", "2"]
    with around.gateway(gateway) as pid:
        figures = around.load(gateway, pid, options)
    if figures["active"] < number or figures["errs"]:
        raise BenchError(
            f"{gateway.name}: of {number} streams {figures['active']:.0f} opened, {figures['errs']:.0f} failed"
        )
    return figures["gw_rss_mb"] * 2**20


def _system_calls(around: Rig, gateway: Gateway, seconds: float) -> None:
    if shutil.which("strace") is None:
        say("system calls: not counted, strace is absent (apt install strace)")
        return
    limits = ["-t", str(seconds), "-w", "0"]
    # Tracing makes the gateway slow: with few streams chunks still come one by one, as they do without it.
    runs = (("request", ["-c", "64", "-b", "200"]), ("chunk", stream_options(20)))
    for unit, options in runs:
        with around.gateway(gateway) as pid:
            _count(around, gateway, pid, unit, [*options, *limits])


def _count(around: Rig, gateway: Gateway, pid: int | None, unit: str, options: Sequence[str]) -> None:
    summary = around.folder / "strace.txt"
    with _traced(pid, summary):
        figures = around.load(gateway, pid, options)
    done = figures["chunks" if unit == "chunk" else "calls"]
    calls = counts(summary.read_text())
    each = ", ".join(f"{name} {count / done:.2f}" for name, count in sorted(calls.items(), key=lambda c: -c[1])[:6])
    say(
        f"{gateway.name}: {sum(calls.values()) / done:.2f} system calls per {unit},"
        f" {data_calls(calls) / done:.2f} of them move data ({each})"
    )


@contextmanager
def _traced(pid: int | None, summary: Path) -> Iterator[None]:
    """All system calls of a process and its threads are counted while the block lasts."""
    command = ["strace", "-c", "-f", "-o", str(summary), "-p", str(pid)]
    with running(command, log=summary.with_suffix(".log")) as process:
        time.sleep(0.5)
        if process.poll() is not None:
            raise BenchError("strace may not look at other processes here: run as root, or allow ptrace")
        yield


if __name__ == "__main__":
    main()
