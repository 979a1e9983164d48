"""Weights of tokens as the file writes them, and what makes no sense of them."""

from typing import Any

import pytest

from config.units import parse_weight
from tests.unit.config.samples import config, problems

BUDGET = "tiers/standard/budgets/0"
PLACE = "tiers.standard.budgets[0]"


def weighted(**weights: Any) -> tuple[str, Any]:
    return BUDGET, {"dimension": "weighted_tokens", "amount": "200k", "per": "1m", "burst": "50k", "weights": weights}


def test_amounts_are_in_tokens_and_weights_in_decimals() -> None:
    (budget,) = config(weighted(cached=0.025, decode="2.5")).tiers["standard"].budgets
    assert (budget.amount, budget.burst) == (200_000_000, 50_000_000)
    assert budget.weighing is not None
    assert budget.weighing.told == {"prefill": 1, "cached": 0.025, "decode": 2.5}


def test_without_weights_what_was_cached_counts_for_a_tenth() -> None:
    change = (BUDGET, {"dimension": "weighted_tokens", "amount": 1, "every": "day"})
    (budget,) = config(change).tiers["standard"].budgets
    assert budget.weighing is not None
    assert budget.weighing.told == {"prefill": 1, "cached": 0.1, "decode": 1}


@pytest.mark.parametrize(
    ("weights", "place", "said"),
    [
        ({"cached": -0.1}, ".weights.cached", "a weight from 0 to 100"),
        ({"decode": 101}, ".weights.decode", "a weight from 0 to 100"),
        ({"cached": 0.0001}, ".weights.cached", "at most three decimals"),
        ({"cached": "10%"}, ".weights.cached", "such as 1, 0.1 or 2.5"),
        ({"cached": True}, ".weights.cached", "a weight"),
        ({"cached": float("nan")}, ".weights.cached", "finite"),
        ({"output": 1}, ".weights.output", "decode"),
        ({"cached": 2}, ".weights", "lower cached or raise prefill"),
        ({"prefill": 0, "cached": 0, "decode": 0}, ".weights", "count nothing"),
    ],
)
def test_weights_that_make_no_sense_are_told_with_their_place(weights: dict[str, Any], place: str, said: str) -> None:
    found = problems(weighted(**weights))
    assert list(found) == [PLACE + place]
    assert said in found[PLACE + place]


def test_weights_of_another_dimension_are_refused() -> None:
    (said,) = problems((f"{BUDGET}/weights", {"cached": 0.1})).values()
    assert said.startswith("weights are of weighted_tokens only; leave them out")


def test_a_weight_is_whole_in_its_parts() -> None:
    assert [parse_weight(each, 1_000) for each in (0, 0.001, "0.1", 1, 100)] == [0, 1, 100, 1_000, 100_000]
