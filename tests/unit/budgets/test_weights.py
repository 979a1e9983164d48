"""What weighted tokens count for: exact, linear, and never more by a cache."""

from itertools import product

import pytest
from pydantic import ValidationError

from budgets.lease import in_order, taken
from budgets.limit import Dimension, Limit, units, weighed
from budgets.scope import Scope, stays
from budgets.weights import Weights

LIMIT = Limit(name="w", dimension="weighted_tokens", amount=5_000, per_seconds=60)
DEAR = Limit(name="dear", dimension="weighted_tokens", amount=5_000, every="day", weights=Weights(decode=4_000))
TOTAL = Limit(name="t", dimension="total_tokens", amount=5, every="day")
CALL: dict[Dimension, int] = {"prefill_tokens": 40, "cached_tokens": 60, "decode_tokens": 5, "total_tokens": 105}


def test_a_cached_token_counts_for_a_tenth_unless_said_otherwise() -> None:
    assert LIMIT.parts_of(CALL) == 40_000 + 6_000 + 5_000
    assert units("weighted_tokens", LIMIT.parts_of(CALL)) == 51
    assert DEAR.parts_of(CALL) == 40_000 + 6_000 + 20_000
    assert TOTAL.parts_of(CALL) == 105, "all other dimensions count as they are"


def test_what_is_taken_on_the_way_adds_up_to_what_is_used() -> None:
    weights = Weights(prefill=1_001, cached=7, decode=333)
    for prefill, cached, decode in product((0, 1, 97), repeat=3):
        step: dict[Dimension, int] = {"prefill_tokens": prefill, "cached_tokens": cached, "decode_tokens": decode}
        both = {kind: tokens + CALL[kind] for kind, tokens in step.items()}
        assert weighed(weights, step) + weighed(weights, CALL) == weighed(weights, both)


def test_limits_of_the_same_weights_share_a_place_behind_those_of_dimensions() -> None:
    usual = LIMIT.model_copy(update={"name": "v", "weights": Weights()})
    standing = Scope("acme", (LIMIT, TOTAL, DEAR, usual)).standing(0)
    assert standing.dimensions == (("total_tokens", 1e6),)
    assert standing.weights == ((Weights(), 1e3), (Weights(decode=4_000), 1e3))
    assert in_order(standing, CALL) == [105e6, 51e6, 66e6]
    assert in_order(Scope("acme", (TOTAL,)).standing(0), CALL) == [105e6]


def test_micro_units_are_those_of_whole_tokens() -> None:
    (terms,) = Scope("acme", (LIMIT,)).standing(0).terms
    assert (terms.scale, taken(terms, CALL, None)) == (1_000, 51_000_000)


def test_of_a_dead_worker_s_call_the_prompt_stays_at_its_weight() -> None:
    unread = DEAR.model_copy(update={"weights": Weights(prefill=0, cached=0)})
    assert [stays(each) for each in Scope("acme", (LIMIT, DEAR, unread)).standing(0).terms] == [1_000_000, 1_000_000, 0]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ({"prefill": 0, "cached": 0, "decode": 0}, "count nothing"),
        ({"cached": 1_001}, "cannot count for more"),
        ({"prefill": 50}, "cannot count for more"),
        ({"prefill": -1}, "greater than or equal to 0"),
        ({"decode": 100_001}, "less than or equal to 100000"),
        ({"output": 1}, "Extra inputs"),
    ],
)
def test_weights_that_make_no_sense_are_refused(weights: dict[str, int], said: str) -> None:
    with pytest.raises(ValidationError, match=said):
        Weights.model_validate(weights)


def test_weights_are_of_weighted_tokens_only() -> None:
    with pytest.raises(ValidationError, match="weights are of weighted_tokens only"):
        Limit(dimension="total_tokens", amount=1, every="day", weights=Weights())
