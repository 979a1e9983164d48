"""`python -m bench.context`: what context policies cost and what they keep, replayed over sessions without a model.

Rule: everything is exact arithmetic over the gateway's own planner, so it takes seconds and is the same everywhere.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from bench import context_plot
from bench.context_figures import Figures, figures
from bench.context_replay import Machine
from bench.context_sessions import TRACES, Session, forty_steps, forty_turns, real
from bench.context_table import by_kind, costs
from bench.context_tiers import FORTY, REAL, Scale, tiers
from config import catalogue


def main() -> None:
    """Replay and print. A fault ends it with one line."""
    chosen = _arguments()
    try:
        machine = _machine(chosen.model, chosen.gpu)
        groups = {
            "Forty turns, outputs of 2,000 tokens": ([forty_turns()], FORTY),
            "The same in one turn": ([forty_steps()], FORTY),
            "Real sessions of agents": (real(chosen.traces), REAL),
        }
    except (OSError, ValueError) as error:
        sys.exit(f"bench.context: {error}")
    found = {title: _replayed(sessions, scale, machine) for title, (sessions, scale) in groups.items()}
    for title, rows in found.items():
        _, scale = groups[title]
        print(
            f"\n{title}: trigger {scale.trigger_tokens:,}, outputs trimmed to {scale.output_tokens:,}, "
            f"old ones to {scale.old_tokens}; KV bytes of {chosen.model}\n"
        )
        print(costs(rows), by_kind(rows), sep="\n\n")
    if chosen.plot:
        chosen.plot.write_text(context_plot.svg(found), "utf-8")


def _replayed(sessions: Sequence[Session], scale: Scale, machine: Machine) -> list[Figures]:
    return [figures(sessions, tier, machine) for tier in tiers(scale)]


def _machine(model: str, gpu: str) -> Machine:
    entry, hardware = catalogue.model(model), catalogue.gpu(gpu)
    if entry is None or hardware is None:
        raise ValueError(f"the catalogue has no {model if entry is None else gpu}")
    return Machine(entry.geometry, hardware)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.context", description=__doc__)
    parser.add_argument("--traces", type=Path, default=TRACES, help="a folder of sessions (*.jsonl)")
    parser.add_argument("--model", default="llama-3.1-8b", help="whose KV bytes are read, of the catalogue")
    parser.add_argument("--gpu", default="h100-sxm", help="for the prices of economic steps, of the catalogue")
    parser.add_argument("--plot", type=Path, help="write the trade-off to this SVG")
    return parser.parse_args()


if __name__ == "__main__":
    main()
