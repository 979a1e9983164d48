"""What one caller gets of one model: limits, policies and amounts, worked out once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.engines.load import Load
from budgets.charge import Charge, Spent
from budgets.cost import kv_read_bytes
from budgets.usage import Usage
from gateway.clock import monotonic
from gateway.counting import Counter
from gateway.delivery import Delivery
from gateway.pools import ServedPool
from gateway.service import Service
from policies.cap_context import CapContext
from policies.sizes import may_act
from tests.unit.gateway.samples import call, caller, config, model

KV = {"dimension": "kv_read_bytes", "amount": "2TB", "per": "1h"}
USED = Usage.reported(1_000, 400, 30)
CALL = call(b'{"model":"demo","messages":[{"role":"user","content":"x"}]}')


def service(*changes: tuple[str, object]) -> Service:
    loaded = config(*changes)
    pools = [ServedPool(pool, loaded.routing, monotonic, {}) for pool in loaded.pools.values()]
    return Service(caller(*changes), loaded.models["demo"], pools, Counter(len))


def test_amounts_in_every_dimension_that_is_limited() -> None:
    amounts = service(("tiers/standard/budgets", [KV])).amounts(USED, 1)
    assert amounts == {
        "requests": 1,
        "prefill_tokens": 600,
        "cached_tokens": 400,
        "decode_tokens": 30,
        "total_tokens": 1_030,
        "kv_read_bytes": kv_read_bytes(model().geometry, 1_000, 30),
    }
    assert "kv_read_bytes" not in service().amounts(USED, 1)


COSTS = [
    {"dimension": "money", "amount": "5", "every": "day"},
    {"dimension": "gpu_seconds", "amount": "1h", "every": "day"},
    {"dimension": "kv_byte_seconds", "amount": "1PB", "every": "day"},
]
HOURLY = ("pools/main/price_per_gpu_hour", 2)


def test_what_depends_on_the_pool_is_reserved_at_the_dearest() -> None:
    slow = {"models": ["demo"], "hardware": "l4", "price_per_gpu_hour": 1, "replicas": ["http://127.0.0.1:2"]}
    budgets = ("tiers/standard/budgets", COSTS)
    both = service(budgets, HOURLY, ("pools/slow", slow))
    expected = both.amounts(USED, 1)
    single = [service(budgets, HOURLY).amounts(USED, 1), service(budgets, ("pools/main", slow)).amounts(USED, 1)]
    for dimension in ("money", "gpu_seconds", "kv_byte_seconds"):
        assert expected[dimension] == max(each[dimension] for each in single) > 0
    assert single[0]["gpu_seconds"] < single[1]["gpu_seconds"]


def test_what_it_cost_is_charged_where_it_ran() -> None:
    at = service(("tiers/standard/budgets", COSTS), HOURLY)
    ended = Delivery(
        pool="main", replica="127.0.0.1:9001", sent_at=10.0, first_at=10.5, ended_at=13.5, network_bytes=70
    )
    charge = at.charge(USED, CALL, ended, at.kv_read_bytes(USED, 1))
    by_hand = at.tariffs[0].charge(USED, 1, Spent(0.5, 3.0, 1), at.kv_read_bytes(USED, 1), 1, 70)
    assert charge == by_hand
    amounts = at.amounts(USED, 1, charge=charge)
    assert (amounts["money"], amounts["gpu_seconds"]) == (charge.money_nanos, charge.gpu_microseconds)
    assert (amounts["kv_byte_seconds"], amounts["network_bytes"]) == (charge.kv_byte_seconds, 70)
    assert at.charge(USED, CALL, Delivery(), 0) == Charge(), "it never got anywhere"


def test_the_batch_is_what_the_engine_last_said_it_runs() -> None:
    at = service(HOURLY)
    ended = Delivery(pool="main", replica="127.0.0.1:9001", sent_at=1.0, ended_at=2.0)
    alone = at.charge(USED, CALL, ended, 0)
    at.pools[0].pool.learn("127.0.0.1:9001", load=Load(running=32), max_model_len=None)
    assert at.charge(USED, CALL, ended, 0).gpu_microseconds < alone.gpu_microseconds


def test_without_a_limit_of_costs_nothing_is_worked_out_beforehand() -> None:
    assert service().amounts(USED, 1).keys().isdisjoint({"money", "gpu_seconds", "kv_byte_seconds"})


@pytest.mark.parametrize("choices", [0, 1, 3])
def test_every_choice_reads_the_prompt_for_itself(choices: int) -> None:
    each = max(1, choices)
    expected = each * kv_read_bytes(model().geometry, 1_000, 30 // each)
    assert service().kv_read_bytes(USED, choices) == expected


def test_no_generated_token_is_left_out_where_choices_cannot_be_of_one_length() -> None:
    """Four choices and thirty tokens: two of seven, two of eight."""
    seven, eight = (kv_read_bytes(model().geometry, 1_000, tokens) for tokens in (7, 8))
    assert service().kv_read_bytes(USED, 4) == 2 * seven + 2 * eight


def test_the_models_limit_is_what_all_engines_can_take_once_they_said_so() -> None:
    at = service(("pools/main/replicas", ["http://127.0.0.1:1", "http://127.0.0.1:2"]))
    before = at.policies
    assert at.context_limit_tokens is None
    pool = at.pools[0].pool
    for replica, tokens in zip(pool.replicas, (8_192, 4_096), strict=True):
        pool.learn(replica.name, load=None, max_model_len=tokens)
    assert at.context_limit_tokens == 4_096
    assert list(at.policies) == [*before, CapContext(limit_tokens=4_096)]


def test_a_configured_limit_goes_before_what_engines_say() -> None:
    at = service(("models/demo/context_limit_tokens", 2_000))
    at.pools[0].pool.learn(at.pools[0].pool.replicas[0].name, load=None, max_model_len=4_096)
    assert at.context_limit_tokens == 2_000


def test_what_was_quiet_is_asked_again_when_an_engine_reports_its_limit() -> None:
    at = service(("tiers/standard/context", {}), ("tiers/standard/policies", []))
    assert at.quiet((10_000, 5_000, 3, 0), 0.0)
    at.pools[0].pool.learn(at.pools[0].pool.replicas[0].name, load=None, max_model_len=4_096)
    assert not at.quiet((10_000, 5_000, 3, 0), 0.0)
    assert at.quiet((1_000, 500, 3, 0), 0.0)


SIZES = st.lists(
    st.tuples(st.integers(0, 60_000), st.integers(0, 20_000), st.integers(0, 4_000), st.integers(0, 120)),
    min_size=1,
    max_size=12,
)


@given(sizes=SIZES)
def test_quiet_is_what_the_policies_say_whatever_was_asked_before(sizes: list[tuple[int, int, int, int]]) -> None:
    policies = [{"kind": "trim_tool_output", "max_tokens": 2_000}, {"kind": "drop_stale_turns", "gap_seconds": 60}]
    at = service(("tiers/standard/context", {"limit_tokens": 30_000}), ("tiers/standard/policies", policies))
    for *size, idle in sizes:
        total, largest, messages = size
        acts = may_act(at.policies, total, largest, messages, idle_seconds=float(idle))
        assert at.quiet((total, largest, messages, 0), float(idle)) is not acts
