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
    assert [Limit(dimension=dimension, amount=1, per_seconds=1).dimension for dimension in DIMENSIONS] == [*DIMENSIONS]


@pytest.mark.parametrize(
    "fields",
    [{"amount": 0}, {"amount": -1}, {"per_seconds": 0}, {"burst": 0}, {"dimension": "tokens"}, {"name": "a b"}],
)
def test_what_a_limit_must_not_be(fields: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Limit.model_validate({"dimension": "requests", "amount": 1, "per_seconds": 1, **fields})
