"""What a limit means, and what it must not be."""

import pytest
from pydantic import ValidationError

from budgets.limit import DIMENSIONS, Limit


def test_without_a_burst_one_amount_fits_the_bucket() -> None:
    assert Limit(dimension="requests", amount=60, per_seconds=30).capacity == 60
    assert Limit(dimension="requests", amount=60, per_seconds=30, burst=5).capacity == 5
    assert Limit(dimension="requests", amount=60, per_seconds=30).per_second == 2


def test_a_limit_without_a_name_is_called_by_what_it_limits() -> None:
    assert Limit(dimension="total_tokens", amount=1, per_seconds=60).label == "total_tokens_per_60s"
    assert Limit(name="daily", dimension="total_tokens", amount=1, per_seconds=86_400).label == "daily"


def test_every_dimension_can_be_limited() -> None:
    rates = [Limit(dimension=each, amount=1, per_seconds=1) for each in DIMENSIONS if each != "concurrent_calls"]
    at_once = Limit(dimension="concurrent_calls", amount=1)
    assert [limit.dimension for limit in (*rates, at_once)] == [*DIMENSIONS]
    assert {limit.kind for limit in rates} == {"rate"}
    assert at_once.kind == "slots"


@pytest.mark.parametrize(
    "fields",
    [{"amount": 0}, {"amount": -1}, {"per_seconds": 0}, {"burst": 0}, {"dimension": "tokens"}, {"name": "a b"}],
)
def test_what_a_limit_must_not_be(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Limit.model_validate({"dimension": "requests", "amount": 1, "per_seconds": 1, **fields})


def test_a_quota_is_of_a_window_of_the_calendar() -> None:
    quota = Limit(dimension="total_tokens", amount=864, every="day", time_zone="Europe/Paris", status=402)
    assert (quota.kind, quota.capacity, quota.label) == ("quota", 864, "total_tokens_every_day")
    assert quota.per_second == 0.01


def test_a_limit_of_one_model_is_called_after_it() -> None:
    limit = Limit(dimension="concurrent_calls", amount=4, model="org/big")
    assert limit.label == "concurrent_calls_of_org_big"
    assert limit.per_second == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "either per"),
        ({"per_seconds": 1, "every": "day"}, "either per"),
        ({"every": "year"}, "minute"),
        ({"every": "day", "burst": 5}, "burst is of rates"),
        ({"every": "day", "time_zone": "Mars/Olympus"}, "no such time zone"),
        ({"every": "day", "time_zone": "../etc/passwd"}, "no such time zone"),
        ({"every": "hour", "time_zone": "Europe/Paris"}, "time_zone is of quotas"),
        ({"per_seconds": 1, "time_zone": "Europe/Paris"}, "time_zone is of quotas"),
        ({"per_seconds": 1, "status": 402}, "status is of quotas"),
        ({"every": "day", "status": 418}, "402"),
        ({"per_seconds": 1, "hardness": "strict"}, "always strict"),
        ({"dimension": "concurrent_calls", "per_seconds": 1}, "at once"),
        ({"dimension": "concurrent_calls", "every": "day"}, "at once"),
        ({"dimension": "concurrent_calls", "burst": 2}, "burst is of rates"),
        ({"per_seconds": 1, "on_exceed": "stop"}, "on_exceed is of elastic"),
        (
            {"dimension": "decode_tokens", "per_seconds": 1, "on_exceed": "stop", "hardness": "strict"},
            "on_exceed is of elastic",
        ),
    ],
)
def test_a_limit_is_of_one_kind_and_has_nothing_of_another(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Limit.model_validate({"dimension": "requests", "amount": 1, **fields})
