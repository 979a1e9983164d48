"""What calls cost, in every dimension: before they run at the dearest pool, after it where they ran."""

import pytest

from backends.engines.load import Load
from budgets.charge import Charge, Spent
from budgets.cost import kv_read_bytes
from budgets.usage import Usage
from gateway.delivery import Delivery
from tests.unit.gateway.samples import call, model
from tests.unit.gateway.test_service import service

KV = {"dimension": "kv_read_bytes", "amount": "2TB", "per": "1h"}
USED = Usage.reported(1_000, 400, 30)
CALL = call(b'{"model":"demo","messages":[{"role":"user","content":"x"}]}')


def test_amounts_in_every_dimension_that_is_limited() -> None:
    amounts = service(("tiers/standard/budgets", [KV])).costs.amounts(USED, 1)
    assert amounts == {
        "requests": 1,
        "prefill_tokens": 600,
        "cached_tokens": 400,
        "decode_tokens": 30,
        "total_tokens": 1_030,
        "kv_read_bytes": kv_read_bytes(model().geometry, 1_000, 30),
    }
    assert "kv_read_bytes" not in service().costs.amounts(USED, 1)


COSTS = [
    {"dimension": "money", "amount": "5", "every": "day"},
    {"dimension": "gpu_seconds", "amount": "1h", "every": "day"},
    {"dimension": "kv_byte_seconds", "amount": "1PB", "every": "day"},
]
HOURLY = ("pools/main/price_per_gpu_hour", 2)


def test_what_depends_on_the_pool_is_reserved_at_the_dearest() -> None:
    slow = {"models": ["demo"], "hardware": "l4", "price_per_gpu_hour": 1, "replicas": ["http://127.0.0.1:2"]}
    budgets = ("tiers/standard/budgets", COSTS)
    both, *alone = [
        service(budgets, *pools).costs.amounts(USED, 1)
        for pools in ((HOURLY, ("pools/slow", slow)), (HOURLY,), (("pools/main", slow),))
    ]
    for dimension in ("money", "gpu_seconds", "kv_byte_seconds"):
        assert both[dimension] == max(each[dimension] for each in alone) > 0
    assert alone[0]["gpu_seconds"] < alone[1]["gpu_seconds"]


def test_what_it_cost_is_charged_where_it_ran() -> None:
    at = service(("tiers/standard/budgets", COSTS), HOURLY)
    ended = Delivery(
        pool="main", replica="127.0.0.1:9001", sent_at=10.0, first_at=10.5, ended_at=13.5, network_bytes=70
    )
    charge = at.costs.charge(USED, CALL, ended, at.costs.kv_read_bytes(USED, 1))
    by_hand = at.costs.tariffs[0].charge(USED, 1, Spent(0.5, 3.0, 1), at.costs.kv_read_bytes(USED, 1), 1, 70)
    assert charge == by_hand
    amounts = at.costs.amounts(USED, 1, charge=charge)
    assert (amounts["money"], amounts["gpu_seconds"]) == (charge.money_nanos, charge.gpu_microseconds)
    assert (amounts["kv_byte_seconds"], amounts["network_bytes"]) == (charge.kv_byte_seconds, 70)
    assert at.costs.charge(USED, CALL, Delivery(), 0) == Charge(), "it never got anywhere"


def test_the_batch_is_what_the_engine_last_said_it_runs() -> None:
    at = service(HOURLY)
    ended = Delivery(pool="main", replica="127.0.0.1:9001", sent_at=1.0, ended_at=2.0)
    alone = at.costs.charge(USED, CALL, ended, 0)
    at.pools[0].pool.learn("127.0.0.1:9001", load=Load(running=32), max_model_len=None)
    assert at.costs.charge(USED, CALL, ended, 0).gpu_microseconds < alone.gpu_microseconds


def test_without_a_limit_of_costs_nothing_is_worked_out_beforehand() -> None:
    assert service().costs.amounts(USED, 1).keys().isdisjoint({"money", "gpu_seconds", "kv_byte_seconds"})


@pytest.mark.parametrize("choices", [0, 1, 3])
def test_every_choice_reads_the_prompt_for_itself(choices: int) -> None:
    each = max(1, choices)
    expected = each * kv_read_bytes(model().geometry, 1_000, 30 // each)
    assert service().costs.kv_read_bytes(USED, choices) == expected


def test_no_generated_token_is_left_out_where_choices_cannot_be_of_one_length() -> None:
    """Four choices and thirty tokens: two of seven, two of eight."""
    seven, eight = (kv_read_bytes(model().geometry, 1_000, tokens) for tokens in (7, 8))
    assert service().costs.kv_read_bytes(USED, 4) == 2 * seven + 2 * eight
