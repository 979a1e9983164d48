"""The search for how many streams of 50 chunks/s one core carries.

Rule: carried means that 95 % of the chunks come in time, the 99th percentile of their delay is within 10 ms of the
engine's own, and at most one call in a thousand fails.
"""

from collections.abc import Callable
from typing import Final

from bench.rig import Figures

TRIES: Final = 8
MOST_STREAMS: Final = 4000
SLACK_US: Final = 10_000.0


def carried(figures: Figures, direct_p99_us: float) -> bool:
    """Whether a measurement passes."""
    return (
        figures["cps"] >= 0.95 * figures["want_cps"]
        and figures["dly_p99_us"] <= direct_p99_us + SLACK_US
        and figures["errs"] <= figures["ok"] * 0.001
    )


def guess(cpu_seconds_per_million_chunks: float) -> int:
    """Where to begin: 60 % of what the CPU time per chunk would allow at 50 chunks/s a stream."""
    return max(8, min(1500, int(0.6 * 1e6 / 50 / cpu_seconds_per_million_chunks)))


def next_try(good: int, bad: int | None) -> int | None:
    """The count to try after the largest that passed and the smallest that failed; None when they are close enough."""
    if bad is None:
        return min(MOST_STREAMS, int(good * 1.3)) if good < MOST_STREAMS else None
    if bad - good <= max(2, 0.08 * bad):
        return None
    return (good + bad) // 2 if good else max(1, int(bad * 0.6))


def most_streams(passes: Callable[[int], bool], start: int) -> int:
    """The largest count that passed, by at most `TRIES` measurements; 0 if none did."""
    good, bad, count = 0, None, start
    for _ in range(TRIES):
        if passes(count):
            good = count
        else:
            bad = count
        following = next_try(good, bad)
        if following is None:
            break
        count = following
    return good
