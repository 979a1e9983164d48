"""What the soak calls flat: also that it says no to what grows, and to what it cannot tell."""

import random

import pytest

from bench.flat import BOUND, PIECES, UNKNOWN, Reading, growth

MEGABYTE = 1_000_000


def run(per_call: float = 0.0, noise: float = 0.0, calls: int = 360_000, count: int = 300) -> list[Reading]:
    """Readings of a run whose memory grows by so much a call, with noise."""
    rng = random.Random(7)
    at = [calls * number // count for number in range(count)]
    return [Reading(n, int(130 * MEGABYTE + per_call * n + rng.uniform(-noise, noise))) for n in at]


def test_a_line_is_found_as_it_is() -> None:
    found = growth(run(77.0))
    assert found.slope == pytest.approx(77.0, rel=1e-3)
    assert found.error < 0.01
    assert not found.flat


@pytest.mark.parametrize(("per_call", "flat"), [(0.0, True), (BOUND / 2, True), (BOUND * 1.5, False), (16.0, False)])
def test_noise_of_a_megabyte_hides_no_object_a_call(per_call: float, flat: bool) -> None:
    assert growth(run(per_call, noise=MEGABYTE / 2)).flat is flat


def test_what_grew_before_the_last_two_thirds_does_not_count() -> None:
    early = [Reading(n * 1_000, n * MEGABYTE) for n in range(100)]
    late = [Reading((100 + n) * 1_000, 100 * MEGABYTE) for n in range(200)]
    assert growth(early + late).flat


def test_steps_that_come_again_and_again_are_growth() -> None:
    """Two megabytes in each of ten steps of a run: 55 bytes a call."""
    stairs = [Reading(n * 1_200, 2 * MEGABYTE * (n // 30)) for n in range(300)]
    assert not growth(stairs).flat


def test_one_step_near_the_end_is_not_flat() -> None:
    step = [Reading(n * 1_200, 4 * MEGABYTE * (n > 250)) for n in range(300)]
    assert not growth(step).flat


def test_a_run_too_short_to_tell_is_not_flat() -> None:
    assert growth([]) is UNKNOWN
    assert growth(run(count=3 * PIECES - 3)) is UNKNOWN
    assert not UNKNOWN.flat
    assert not growth([Reading(5, 5)] * 100).flat
    assert not growth(run(noise=MEGABYTE, calls=3_000)).flat
