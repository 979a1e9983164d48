"""What the soak calls flat: also that it says no to what grows, and to what it cannot tell."""

import random
from collections.abc import Sequence

import pytest

from bench.flat import PIECES, UNKNOWN, growth

COUNT = 300
CALLS = [1_200.0 * number for number in range(COUNT)]


def noisy(per_call: float, noise: float, calls: Sequence[float] = CALLS) -> list[float]:
    rng = random.Random(7)
    return [1e6 + per_call * at + rng.uniform(-noise, noise) for at in calls]


def saw(period: int, height: float) -> list[float]:
    """Fills, forgets half, fills again: a period of so many readings."""
    return [height * (1 + at % period / period) for at in range(COUNT)]


def test_a_line_is_found_as_it_is() -> None:
    found = growth(CALLS, noisy(77.0, 0))
    assert found.slope == pytest.approx(77.0)
    assert found.error < 1e-6


@pytest.mark.parametrize("per_call", [0.0, 2.0, -3.0])
def test_what_it_is_at_most_is_above_what_it_is_and_near(per_call: float) -> None:
    found = growth(CALLS, noisy(per_call, 500_000))
    assert per_call < found.most < per_call + 3


def test_what_grew_before_the_last_two_thirds_does_not_count() -> None:
    found = growth(CALLS, [min(at, CALLS[COUNT // 3]) for at in CALLS])
    assert (found.slope, found.error) == (0.0, 0.0)


@pytest.mark.parametrize("step", [30, 250])
def test_steps_are_growth_however_seldom(step: int) -> None:
    """Four megabytes once near the end, or each thirty readings: nothing that ends well by itself."""
    assert growth(CALLS, [4e6 * (at // step) for at in range(COUNT)]).most > 10


def test_what_is_remembered_explains_what_it_takes_and_no_more() -> None:
    full, sizes = saw(70, 30_000), saw(41, 4_000)
    blocks = [1e5 + 2 * a + 4 * b for a, b in zip(full, sizes, strict=True)]
    leak = [each + 0.05 * at for each, at in zip(blocks, CALLS, strict=True)]
    assert growth(CALLS, leak).error > 0.02  # lost in what comes and goes
    assert growth(CALLS, leak, [full, sizes]).slope == pytest.approx(0.05)
    assert growth(CALLS, blocks, [full, sizes]).most < 1e-6
    assert growth(CALLS, leak, [full, full, sizes, [5.0] * COUNT]).slope == pytest.approx(0.05)


def test_what_fills_as_calls_come_cannot_be_told_from_a_leak() -> None:
    assert growth(CALLS, CALLS, [[2 * at + 7 for at in CALLS]]) is UNKNOWN


def test_a_run_too_short_to_tell_is_unknown() -> None:
    assert growth([], []) is UNKNOWN
    few = 3 * PIECES - 3
    assert growth(CALLS[:few], CALLS[:few]) is UNKNOWN
    assert growth([5.0] * COUNT, [5.0] * COUNT) is UNKNOWN
    assert growth([at / 100 for at in CALLS], noisy(0, 1e6)).most > 100
