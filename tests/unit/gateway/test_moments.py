"""Moments are durations from now, or dates."""

import pytest

from gateway.moments import moment_of, told


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2h", 1_000 + 7_200),
        ("90", 1_090),
        (30, 1_030),
        ("1970-01-02", 86_400),
        ("1970-01-01T01:00+01:00", 0),
        ("1970-01-01T00:00:05Z", 5),
    ],
)
def test_moments_that_can_be_read(written: object, seconds: float) -> None:
    assert moment_of(written, 1_000.0) == seconds


@pytest.mark.parametrize("written", ["soon", "", "2026-13-01", None, [1], "-2h"])
def test_others_say_what_was_expected(written: object) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        moment_of(written, 0.0)


@pytest.mark.parametrize("written", ["9999999999d", "0001-01-01", "1969-12-31", 1e300])
def test_moments_out_of_all_bounds_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="between the years"):
        moment_of(written, 0.0)


def test_a_moment_is_told_in_utc() -> None:
    assert told(86_400.9) == "1970-01-02T00:00:00+00:00"
