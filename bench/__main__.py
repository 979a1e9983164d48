"""`python -m bench`: rounds of every gateway in turn, one table at the end.

Rule: the order of gateways is turned round from one round to the next, so that a drift of the machine is nobody's gain.
"""

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median

from bench import cap
from bench.gateways import Gateway, choose, installed, smoke
from bench.machine import BenchError, say, take_cores, wait_until_quiet
from bench.results import FILE, Measurement, append, read
from bench.rig import Figures, Rig, rig
from bench.scenarios import FULL, QUICK, Pace, Scenario, scenarios, stream_options
from bench.table import DIRECT, OURS, TWO_WORKERS, Measure, by_round, render

CAP_SECONDS = 4.0
CAP_CHUNKS = 250
CAP_USUAL_P99_US = 500.0
"""Of a chunk straight from the engine, should that not have been measured in this run."""


def main() -> None:
    """Measure and print. A fault ends it with one line."""
    chosen = _arguments()
    pace = QUICK if chosen.quick else FULL
    try:
        core = take_cores()
        gateways = [gateway for gateway in choose([DIRECT, OURS, *chosen.peers.split()]) if installed(gateway)]
        FILE.unlink(missing_ok=True)
        with rig(core) as around:
            gateways = _answering(around, gateways)
            for number in range(chosen.rounds or pace.rounds):
                _round(around, gateways if number % 2 == 0 else gateways[::-1], pace, number)
            if chosen.cap:
                _cap(around, [gateway for gateway in gateways if gateway.name != DIRECT])
    except BenchError as error:
        sys.exit(f"bench: {error}")
    say("\n" + render(read()))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/run.sh", description="kvgate beside its peers, on one core each.")
    parser.add_argument("--quick", action="store_true", help="under two minutes: shows that everything works")
    parser.add_argument(
        "--cap", action="store_true", help="also search for the streams that one core carries (minutes)"
    )
    parser.add_argument("--rounds", type=int, help="how often to measure everything")
    parser.add_argument(
        "--peers", default=os.environ.get("PEERS", "vllm-router"), help="names of peers.toml, or '' (default: $PEERS)"
    )
    return parser.parse_args()


def _answering(around: Rig, gateways: Sequence[Gateway]) -> list[Gateway]:
    """Those that answer, streamed and not. A peer that does not is left out; kvgate has to."""
    return [gateway for gateway in gateways if _answers(around, gateway)]


def _answers(around: Rig, gateway: Gateway) -> bool:
    began = time.monotonic()
    try:
        with around.gateway(gateway):
            booted_seconds = time.monotonic() - began
            smoke(gateway)
    except BenchError as error:
        if gateway.name in (DIRECT, OURS):
            raise
        say(f"{gateway.name} is left out: {error}")
        return False
    say(f"{gateway.name:18} answers, {booted_seconds:.1f} s after its start")
    return True


def _round(around: Rig, gateways: Sequence[Gateway], pace: Pace, number: int) -> None:
    every = scenarios(around.folder)
    for gateway in gateways:
        _measure(around, gateway, every, pace, number)
        if gateway.name == OURS:
            twice = {"name": TWO_WORKERS, "env": {**gateway.env, "KVGATE_WORKERS": "2"}}
            _measure(around, gateway.model_copy(update=twice), every[:1], pace, number)


def _measure(around: Rig, gateway: Gateway, chosen: Sequence[Scenario], pace: Pace, number: int) -> None:
    """Start it once, then one scenario after the other."""
    with around.gateway(gateway) as pid:
        for scenario in chosen:
            wait_until_quiet(pace.quiet_seconds)
            _record(number, gateway, scenario.name, partial(around.load, gateway, pid, scenario.command(pace)))


def _record(number: int, gateway: Gateway, scenario: str, measured: Callable[[], Figures]) -> None:
    """Measure once and write it down, whatever comes of it."""
    try:
        result = Measurement(round=number, gateway=gateway.name, scenario=scenario, figures=measured())
    except BenchError as error:
        result = Measurement(round=number, gateway=gateway.name, scenario=scenario, trouble=str(error))
    append(result)
    say(f"{number} {gateway.name:18} {scenario:8} {_brief(result)}")


def _brief(result: Measurement) -> str:
    shown = ("rps", "p50_us", "p99_us", "run_s_per_1k", "run_s_per_1m_chunks", "dly_p99_us", "streams", "errs")
    return result.trouble or " ".join(f"{name}={result.figures[name]:g}" for name in shown if name in result.figures)


def _cap(around: Rig, gateways: Sequence[Gateway]) -> None:
    per_chunk, delay = Measure("", "streams", "run_s_per_1m_chunks"), Measure("", "streams", "dly_p99_us")
    so_far = read()
    direct = median(by_round(so_far, DIRECT, delay).values() or [CAP_USUAL_P99_US])
    for gateway in gateways:
        costs = by_round(so_far, gateway.name, per_chunk)
        start = cap.guess(median(costs.values())) if costs else 100
        with around.gateway(gateway) as pid:
            _record(0, gateway, "cap", partial(_streams, around, gateway, pid, start, direct))


def _streams(around: Rig, gateway: Gateway, pid: int | None, start: int, direct_p99_us: float) -> Figures:
    """How many streams it carries, as a figure."""

    def passes(count: int) -> bool:
        options = [*stream_options(count, CAP_CHUNKS), "-t", str(CAP_SECONDS), "-w", "5.2"]
        try:
            figures = around.load(gateway, pid, options)
        except BenchError as error:
            say(f"  {gateway.name} at {count} streams: {error}")
            return False
        say(f"  {gateway.name} at {count} streams: p99 delay {figures['dly_p99_us']:.0f} µs")
        return cap.carried(figures, direct_p99_us)

    return {"streams": float(cap.most_streams(passes, start))}


if __name__ == "__main__":
    main()
