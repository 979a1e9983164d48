"""What engines tell of themselves: others' calls, KV memory that runs out, numbers that stopped being fresh."""

import pytest

from backends.engines.load import Load
from backends.pressure import SILENT_PROBES, STUCK_SECONDS, UNTOLD, Freshness, extra_calls


@pytest.mark.parametrize(
    ("load", "own", "extra"),
    [
        (Load(running=5, waiting=3), 2, 6.0),
        (Load(running=5, waiting=3), 9, 0.0),
        (Load(running=5), 5, 0.0),
        (Load(waiting=4), 1, 3.0),
        (Load(), 3, 0.0),
        (Load(kv_usage=0.8), 0, 0.0),
        (Load(kv_usage=0.9), 0, 0.5),
        (Load(running=2, kv_usage=1.0), 0, 3.0),
        (Load(kv_usage=7.0), 0, 1.0),
    ],
)
def test_extra_calls(load: Load, own: int, extra: float) -> None:
    assert extra_calls(load, own) == pytest.approx(extra)


def after(*probes: tuple[float, Load | None]) -> Freshness:
    found = UNTOLD
    for now, load in probes:
        found = found.after(load, now)
    return found


def test_an_engine_that_never_tells_is_never_stale() -> None:
    silent = after(*[(at * 2.0, None) for at in range(100)], (200.0, Load()))
    assert not silent.stale(1e9)


def test_one_that_told_and_falls_silent_is_stale_after_some_probes_until_it_tells_again() -> None:
    told: list[tuple[float, Load | None]] = [(0.0, Load(running=0))]
    assert not after(*told, *[(1.0, None)] * (SILENT_PROBES - 1)).stale(1.0)
    silent = after(*told, *[(1.0, None)] * SILENT_PROBES)
    assert silent.stale(1.0)
    assert not silent.after(Load(running=0), 2.0).stale(2.0)


def test_one_that_runs_calls_without_a_token_is_stale_and_an_idle_one_is_not() -> None:
    stuck = after((0.0, Load(running=2, progress=7)), (1.0, Load(running=2, progress=9)))
    assert not stuck.after(Load(running=2, progress=9), 50.0).stale(50.0)
    assert stuck.after(Load(running=2, progress=9), STUCK_SECONDS + 2).stale(STUCK_SECONDS + 2)
    assert not stuck.after(Load(running=2, progress=10), STUCK_SECONDS + 2).stale(STUCK_SECONDS + 2)
    assert not stuck.after(Load(running=0, progress=9), 1e6).stale(1e6)
    assert not after((0.0, Load(running=2)), (1e6, Load(running=2))).stale(1e6), "it does not tell its progress"
