"""`bash bench/profile.sh`: where the CPU time of one worker goes under load.

Rule: py-spy samples from outside and is used where it is installed; cProfile, always there, slows every Python call
and is only good for comparing functions with each other.
"""

import argparse
import pstats
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.gateways import BENCH, Gateway, choose
from bench.machine import BenchError, running, say, take_cores
from bench.rig import Rig, rig
from bench.scenarios import scenarios


def main() -> None:
    """Profile kvgate under one scenario. A fault ends it with one line."""
    chosen = _arguments()
    beside = Path(sys.executable).with_name("py-spy")
    py_spy = str(beside) if beside.exists() else shutil.which("py-spy")
    try:
        core = take_cores()
        (ours,) = choose(["kvgate"])
        with rig(core) as around:
            options = {scenario.name: scenario.options for scenario in scenarios(around.folder)}
            if chosen.scenario not in options:
                raise BenchError(f"unknown scenario {chosen.scenario}; there are {', '.join(options)}")
            profile = _sampled if py_spy else _traced
            profile(around, ours, [*options[chosen.scenario], "-t", str(chosen.seconds), "-w", "1"], py_spy or "")
    except BenchError as error:
        sys.exit(f"bench: {error}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench/profile.sh", description=__doc__.partition("\n")[0])
    parser.add_argument("scenario", nargs="?", default="small", help="small, large, chat, alone or streams")
    parser.add_argument("--seconds", type=float, default=10.0)
    return parser.parse_args()


def _sampled(around: Rig, ours: Gateway, options: Sequence[str], py_spy: str) -> None:
    out = BENCH / "out" / "profile.svg"
    with around.gateway(ours) as pid, running(around.load_command(ours, pid, options)) as load:
        command = [py_spy, "record", "--native", "--rate", "500", "--duration", "8", "--output", str(out)]
        done = subprocess.run([*command, "--pid", str(pid)], capture_output=True, text=True)
        load.wait()
    if done.returncode:
        raise BenchError(f"py-spy: {done.stderr.strip().splitlines()[-1]}")
    say(f"flame graph of one worker: {out}")


def _traced(around: Rig, ours: Gateway, options: Sequence[str], _: str) -> None:
    say("py-spy is not installed (pip install py-spy, in kvgate's environment): cProfile instead")
    out = BENCH / "out" / "profile.pstats"
    python, *rest = ours.command
    profiled = ours.model_copy(update={"command": (python, "-m", "cProfile", "-o", str(out), *rest)})
    with around.gateway(profiled) as pid:
        around.load(profiled, pid, options)
    pstats.Stats(str(out)).sort_stats("tottime").print_stats(30)
    say(f"all of it: {out}")


if __name__ == "__main__":
    main()
