"""The benchmark's table: ratios pair figures of one round, and what failed or was disturbed is said."""

from pathlib import Path

from bench.results import Measurement, append, read
from bench.table import DIRECT, MEASURES, OURS, TWO_WORKERS, Measure, by_round, compared, ratios, render

CPU = MEASURES[0]
P50 = Measure("p50", "alone", "p50_us")


def measured(gateway: str, number: int, **figures: float) -> Measurement:
    return Measurement(round=number, gateway=gateway, scenario="small", figures=figures)


def test_a_ratio_pairs_figures_of_the_same_round() -> None:
    assert ratios({0: 2.0, 1: 9.0, 2: 8.0}, {0: 4.0, 2: 2.0, 3: 1.0}) == [0.5, 4.0]


def test_a_round_without_a_figure_of_theirs_is_left_out() -> None:
    assert ratios({0: 2.0}, {0: 0.0}) == []
    assert compared({0: 2.0}, {1: 2.0}, CPU) == "–"


def test_the_median_ratio_is_given_with_its_bounds() -> None:
    assert compared({0: 1.0, 1: 2.0, 2: 6.0}, {0: 2.0, 1: 2.0, 2: 2.0}, CPU) == "**1.00** (0.50–3.00)"


def test_latencies_also_say_what_is_added() -> None:
    assert compared({0: 250.0, 1: 260.0}, {0: 100.0, 1: 130.0}, P50).endswith(", +140 µs")


def test_figures_are_those_of_the_gateway_and_the_scenario() -> None:
    found = [measured(OURS, 0, run_s_per_1k=0.04), measured("envoy", 0, run_s_per_1k=0.05), measured(OURS, 1, rps=1.0)]
    assert by_round(found, OURS, CPU) == {0: 0.04}
    assert by_round(found, OURS, P50) == {}


def test_every_peer_has_its_figure_and_its_ratio_in_one_row() -> None:
    found = [
        measured(name, 0, run_s_per_1k=cost) for name, cost in ((OURS, 0.03), ("envoy", 0.06), ("vllm-router", 0.05))
    ]
    row = next(line for line in render(found).splitlines() if line.startswith(f"| {CPU.title}"))
    assert row.split(" | ")[2:] == ["–", "0.0300", "0.0600", "**0.50** (0.50–0.50)", "0.0500", "**0.60** (0.60–0.60) |"]


def test_without_a_peer_the_table_still_shows_kvgate_and_the_engine() -> None:
    table = render([measured(DIRECT, 0, rps=50_000.0), measured(OURS, 0, rps=20_000.0)])
    assert "| 50,000 | 20,000 |" in table


def test_two_workers_are_held_against_one() -> None:
    found = [measured(OURS, 0, run_s_per_1k=0.04), measured(TWO_WORKERS, 0, run_s_per_1k=0.042)]
    assert "**1.05** (1.05–1.05); aim ≤ 1.1" in render(found)


def test_a_failure_is_told_and_not_averaged_away() -> None:
    failed = Measurement(round=1, gateway="envoy", scenario="small", trouble="no call went well")
    assert "envoy, small, round 1: FAILED: no call went well" in render([failed])


def test_failed_calls_are_told_even_if_others_went_well() -> None:
    assert "kvgate, small, round 0: FAILED: 2 of 50 calls" in render([measured(OURS, 0, ok=48.0, errs=2.0)])


def test_a_busy_machine_is_told() -> None:
    assert "used 0.80 cores" in render([measured(OURS, 0, rps=1.0, neighbours=0.8)])
    assert "cores" not in render([measured(OURS, 0, rps=1.0, neighbours=0.02)])


def test_results_are_read_as_they_were_written(tmp_path: Path) -> None:
    lines = [measured(OURS, 0, rps=1.5), Measurement(round=0, gateway="envoy", scenario="cap", trouble="gone")]
    for line in lines:
        append(line, tmp_path / "results.jsonl")
    assert read(tmp_path / "results.jsonl") == lines
