"""The table of one run: medians over its rounds, and ratios kvgate / peer taken round by round.

Rule: a ratio pairs figures of the same round, measured within minutes of each other; its median is given with the
smallest and the largest. Figures of different runs are never compared.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from bench.results import FILE, Measurement, read

OURS: Final = "kvgate"
TWO_WORKERS: Final = "kvgate-2-workers"
DIRECT: Final = "direct"

Rounds = Mapping[int, float]
"""A figure by round."""


@dataclass(frozen=True, slots=True)
class Measure:
    """One row: a figure of a scenario, and what is aimed at (`×` a peer's, or `+` so many microseconds)."""

    title: str
    scenario: str
    figure: str
    aim: str = ""
    digits: int = 0


MEASURES: Final = (
    Measure("CPU s per 1,000 requests, 200 B, c=64", "small", "run_s_per_1k", "≤ 1.0 ×", 4),
    Measure("... with the store's CPU", "small", "all_s_per_1k", digits=4),
    Measure("requests/s, 200 B, c=64", "small", "rps"),
    Measure("CPU s per 1,000 requests, 20 kB, c=64", "large", "run_s_per_1k", "≤ 1.0 ×", 4),
    Measure("requests/s, 20 kB, c=64", "large", "rps"),
    Measure("CPU s per 1,000 requests, 20 messages of 1 kB, c=64", "chat", "run_s_per_1k", "", 4),
    Measure("requests/s, 20 messages of 1 kB, c=64", "chat", "rps"),
    Measure("p50, c=1, µs", "alone", "p50_us", "≤ + 150 µs"),
    Measure("p99, c=1, µs", "alone", "p99_us"),
    Measure("CPU s per 1M chunks, 100 streams", "streams", "run_s_per_1m_chunks", "≤ 1.0 ×", 2),
    Measure("TTFT p50, µs", "streams", "ttft_p50_us", "≤ + 150 µs"),
    Measure("TTFT p99, µs", "streams", "ttft_p99_us"),
    Measure("chunk delay p50, µs", "streams", "dly_p50_us"),
    Measure("chunk delay p99, µs", "streams", "dly_p99_us", "≤ 1.0 ×"),
    Measure("streams carried at 50 chunks/s", "cap", "streams", "≥ 1.2 ×"),
)


def by_round(measurements: Iterable[Measurement], gateway: str, measure: Measure) -> Rounds:
    """This figure of a gateway in each round that has it."""
    return {
        m.round: m.figures[measure.figure]
        for m in measurements
        if (m.gateway, m.scenario) == (gateway, measure.scenario) and measure.figure in m.figures
    }


def ratios(ours: Rounds, theirs: Rounds) -> list[float]:
    """Ours divided by theirs, for every round that has both and where theirs is not zero."""
    return [ours[number] / theirs[number] for number in ours if theirs.get(number)]


def render(measurements: Sequence[Measurement]) -> str:
    """The table in Markdown, what failed, and a warning if the machine was busy with something else."""
    measured = {m.gateway for m in measurements}
    peers = sorted(measured - {OURS, TWO_WORKERS, DIRECT})
    heads = ["", "aim", DIRECT, OURS, *(head for peer in peers for head in (peer, f"kvgate / {peer} (min–max), added"))]
    rows = [row for measure in MEASURES if (row := _row(measurements, measure, peers))]
    lines = [_line(heads), _line(["---"] * len(heads)), *map(_line, rows)]
    return "\n".join([*lines, *_workers(measurements), *_troubles(measurements), *_noise(measurements)])


def _row(measurements: Sequence[Measurement], measure: Measure, peers: Sequence[str]) -> list[str]:
    """Nothing where nobody was measured."""
    figures = {name: by_round(measurements, name, measure) for name in (DIRECT, OURS, *peers)}
    if not any(figures.values()):
        return []
    cells = [measure.title, measure.aim, _middle(figures[DIRECT], measure), _middle(figures[OURS], measure)]
    for peer in peers:
        cells += [_middle(figures[peer], measure), compared(figures[OURS], figures[peer], measure)]
    return cells


def _middle(rounds: Rounds, measure: Measure) -> str:
    return f"{median(rounds.values()):,.{measure.digits}f}" if rounds else "–"


def compared(ours: Rounds, theirs: Rounds, measure: Measure) -> str:
    """The ratio, its bounds, and for a latency what we add to theirs."""
    found = ratios(ours, theirs)
    if not found:
        return "–"
    told = f"**{_ratio(median(found))}** ({_ratio(min(found))}–{_ratio(max(found))})"
    if not measure.figure.endswith("_us"):
        return told
    return f"{told}, {median(ours[number] - theirs[number] for number in ours if number in theirs):+,.0f} µs"


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value >= 0.1 else f"{value:.4f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _workers(measurements: Sequence[Measurement]) -> list[str]:
    """What a second worker on the same core costs, against one worker of the same round."""
    measure = MEASURES[0]
    one, two = (by_round(measurements, name, measure) for name in (OURS, TWO_WORKERS))
    found = compared(two, one, measure)
    return [f"\nTwo workers / one worker, {measure.title}: {found}; aim ≤ 1.1 ×"] if two else []


def _troubles(measurements: Sequence[Measurement]) -> list[str]:
    """Every measurement that failed or held a failed call."""
    told = ((m, m.trouble or _errors(m)) for m in measurements)
    return [f"\n{m.gateway}, {m.scenario}, round {m.round}: FAILED: {what}" for m, what in told if what]


def _errors(measurement: Measurement) -> str:
    failed = measurement.figures.get("errs", 0)
    return f"{failed:.0f} of {failed + measurement.figures.get('ok', 0):.0f} calls" if failed else ""


def _noise(measurements: Sequence[Measurement], most_cores: float = 0.1) -> list[str]:
    """Words of caution if other programs used CPU while we measured."""
    found = [m.figures["neighbours"] for m in measurements if "neighbours" in m.figures]
    if not found or median(found) < most_cores:
        return []
    return [f"\nOther programs used {median(found):.2f} cores while this was measured: these figures mean little."]


if __name__ == "__main__":
    sys.stdout.write(render(read(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)) + "\n")
