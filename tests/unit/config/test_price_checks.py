"""What a budget of money bounds has a price, and money is written as people write it."""

from typing import Any

import pytest

from config.tiers import Budget
from tests.unit.config.samples import config, problems

DAILY = {"name": "daily", "dimension": "money", "amount": "12.50", "every": "day"}
LIST = {"input": 0.1, "cached": "0.025", "output": 0.4}
BUDGET = ("tiers/standard/budgets", [DAILY])
PRICE = ("models/demo/price_per_million_tokens", LIST)
HOURLY = ("pools/main/price_per_gpu_hour", 2.49)


def test_a_budget_of_money_needs_a_price() -> None:
    assert problems(BUDGET) == {
        "models.demo": "the budget 'daily' bounds its money, but it has no price; add price_per_million_tokens, or "
        "price_per_gpu_hour to pools.main"
    }
    assert problems(BUDGET, PRICE) == problems(BUDGET, HOURLY) == problems(PRICE, HOURLY) == {}


def test_a_strict_one_needs_prices_that_are_known_beforehand() -> None:
    strict = ("tiers/standard/budgets", [DAILY | {"hardness": "strict"}])
    assert problems(strict, HOURLY) == {
        "models.demo": "the strict budget 'daily' bounds its money; add price_per_million_tokens, which is exact"
    }
    assert problems(strict, PRICE) == {}


@pytest.mark.parametrize("owner", ["keys", "session", "organisation"])
def test_whosever_budget_it_is(owner: str) -> None:
    changes: dict[str, list[tuple[str, Any]]] = {
        "keys": [("tenants/acme/keys/0/budgets", [DAILY])],
        "session": [("tiers/standard/session", {"budgets": [DAILY]})],
        "organisation": [("organisations", {"group": {"budgets": [DAILY]}}), ("tenants/acme/organisation", "group")],
    }
    assert list(problems(*changes[owner])) == ["models.demo"]
    assert problems(*changes[owner], HOURLY) == {}


def test_a_model_that_it_does_not_bound_needs_none() -> None:
    other = ("models/other", {"geometry": "llama-3.1-8b", "price_per_million_tokens": LIST})
    both = ("pools/main/models", ["demo", "other"])
    bounded = ("tiers/standard/budgets", [DAILY | {"model": "other"}])
    assert problems(other, both, bounded) == {}
    assert list(problems(other, both, BUDGET)) == ["models.demo"]
    assert problems(other, both, BUDGET, ("tenants/acme/models", ["other"])) == {}


def test_what_answers_in_its_place_needs_one_too() -> None:
    """A model that a soft limit moves calls to, and one that writes records of older turns, are charged as well."""
    other = ("models/other", {"geometry": "llama-3.1-8b"})
    both = ("pools/main/models", ["demo", "other"])
    bounded = ("tiers/standard/budgets", [DAILY | {"model": "demo"}])
    assert problems(other, both, bounded, PRICE) == {}
    soft = ("tiers/standard/soft", [{"at": "50%", "model": "other"}])
    assert list(problems(other, both, bounded, PRICE, soft)) == ["models.other"]
    writer = {"kind": "summarize_older_turns", "model": "other", "max_tokens": 512}
    policies = ("tiers/standard/policies", [{"kind": "keep_recent_turns"}, writer])
    only = ("tenants/acme/models", ["demo"])
    assert problems(other, both, bounded, PRICE, policies, only) == {}
    assert list(problems(other, both, BUDGET, PRICE, policies, only)) == ["models.other"]


@pytest.mark.parametrize("wrong", ["1 EUR", "-1", "0.0000000001", "1k", True, None, [1]])
def test_money_that_is_none(wrong: object) -> None:
    found = problems(("pools/main/price_per_gpu_hour", wrong)) if wrong is not None else {"pools.main": ""}
    assert [place.rpartition(".")[0] or place for place in found] in (["pools.main"], ["pools"])


def test_prices_and_amounts_are_kept_to_the_billionth() -> None:
    loaded = config(BUDGET, PRICE, ("pools/main/price_per_gpu_hour", "2.490000001"))
    assert loaded.pools["main"].price_per_gpu_hour_nanos == 2_490_000_001
    prices = loaded.models["demo"].price_per_million_tokens
    assert prices is not None
    assert (prices.listed.input_nanos, prices.listed.cached_nanos, prices.listed.output_nanos) == (
        10**8,
        25 * 10**6,
        4 * 10**8,
    )
    assert loaded.tiers["standard"].budgets[0].amount == 12_500_000_000


def test_cached_tokens_cost_what_others_do_unless_said() -> None:
    prices = config(("models/demo/price_per_million_tokens", {"input": 3, "output": 4})).models["demo"]
    assert prices.price_per_million_tokens is not None
    assert prices.price_per_million_tokens.listed.cached_nanos == 3 * 10**9


@pytest.mark.parametrize(
    ("dimension", "amount", "parts"),
    [
        ("gpu_seconds", "10h", 36_000 * 10**6),
        ("gpu_seconds", 1.5, 1_500_000),
        ("kv_byte_seconds", "500TB", 5 * 10**14),
        ("money", 0.1, 10**8),
        ("requests", "2k", 2_000),
    ],
)
def test_amounts_are_written_in_the_units_of_their_dimension(dimension: str, amount: object, parts: int) -> None:
    budget = Budget.model_validate({"dimension": dimension, "amount": amount, "every": "day"})
    assert budget.amount == budget.capacity == parts


@pytest.mark.parametrize("dimension", ["gpu_seconds", "kv_byte_seconds"])
def test_what_is_known_only_afterwards_cannot_be_strict(dimension: str) -> None:
    strict = {"dimension": dimension, "amount": "1h", "every": "day", "hardness": "strict"}
    if dimension == "kv_byte_seconds":
        strict["amount"] = "1TB"
    (message,) = problems(("tiers/standard/budgets", [strict])).values()
    assert message.startswith(f"{dimension} of a call are known only when it has ended; leave hardness out")


def test_what_a_cache_held_is_never_dearer_than_what_is_computed() -> None:
    """What is reserved for a prompt is its price as computed, so a strict budget would not hold."""
    found = problems(("models/demo/price_per_million_tokens", {"input": 1, "cached": 1.5, "output": 4}))
    assert list(found) == ["models.demo.price_per_million_tokens"]
    assert "cached tokens cannot cost more" in found["models.demo.price_per_million_tokens"]
    assert problems(("models/demo/price_per_million_tokens", {"input": 1, "cached": 1, "output": 0})) == {}
