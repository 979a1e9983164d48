"""What the gateway asks of a configuration."""

import pytest

from config.effective import Effective
from policies.cap_context import CapContext
from policies.keep_recent_turns import KeepRecentTurns
from policies.trim_tool_output import TrimToolOutput
from tests.unit.config.samples import config, problems


def effective(*changes: tuple[str, object]) -> Effective:
    loaded = config(*changes)
    return loaded.effective(loaded.tenants["acme"])


def test_a_model_by_its_name_and_by_its_alias() -> None:
    loaded = config(("models/demo/engine_name", "meta/llama"))
    assert loaded.model_named("demo") is loaded.model_named("gpt-4o-mini") is loaded.models["demo"]
    assert loaded.models["demo"].upstream_name == "meta/llama"
    assert loaded.model_named("other") is None


def test_an_engine_calls_a_model_by_its_name_unless_told_otherwise() -> None:
    assert config().models["demo"].upstream_name == "demo"


def test_pools_of_a_model_in_the_order_of_the_file() -> None:
    pool = {"models": ["gpt-4o-mini"], "hardware": "h100-sxm", "replicas": ["http://b:1"]}
    other = {"models": ["two"], "hardware": "h100-sxm", "replicas": ["http://c:1"]}
    loaded = config(("pools/a", pool), ("pools/other", other), ("models/two", {"geometry": "tiny"}))
    assert {pool.name for pool in loaded.pools_for(loaded.models["demo"])} == {"main", "a"}
    assert [pool.name for pool in loaded.pools_for(loaded.models["two"])] == ["other"]


def test_number_formats_are_part_of_the_geometry() -> None:
    loaded = config(("models/demo/kv_dtype", "fp8"), ("models/demo/weight_dtype", "fp8"))
    geometry = loaded.models["demo"].geometry
    assert (geometry.kv_bytes_per_token, geometry.weight_bytes()) == (64 * 1024, 8_030_000_000)


def test_a_geometry_and_hardware_spelled_out_in_peoples_units() -> None:
    geometry = {"hidden": 8, "total_params": "8G", "attention": [{"layers": 1, "heads": 1, "head_dim": 8}]}
    hardware = {"name": "own", "bf16_flops": 1e14, "memory_bytes": "80GB", "memory_bytes_per_second": "2TB"}
    loaded = config(("models/demo/geometry", geometry), ("pools/main/hardware", hardware))
    assert loaded.models["demo"].geometry.total_params == 8 * 10**9
    assert loaded.pools["main"].hardware.memory_bytes_per_second == 2e12


def test_tensor_parallel_is_part_of_the_hardware() -> None:
    assert config(("pools/main/tensor_parallel", 4)).pools["main"].hardware.count == 4


def test_a_tenant_has_what_its_tier_has() -> None:
    may = effective()
    assert (may.tenant, may.tier, may.priority, may.models) == ("acme", "standard", 0, frozenset({"demo"}))
    assert (may.max_tokens.default, may.max_tokens.limit) == (1_024, 4_096)
    (budget,) = may.budgets
    assert (budget.amount, budget.per_seconds, budget.capacity) == (200_000, 60, 200_000)


def test_policies_are_told_the_marks_and_the_limit() -> None:
    assert effective().policies == (
        TrimToolOutput(max_tokens=2_000),
        KeepRecentTurns(high_water_tokens=24_000, low_water_tokens=16_000),
        CapContext(limit_tokens=32_000),
    )


def test_a_window_with_marks_of_its_own_keeps_them() -> None:
    window = {"kind": "keep_recent_turns", "high_water_tokens": "8k", "low_water_tokens": "4k"}
    assert effective(("tiers/standard/policies", [window])).policies[0] == KeepRecentTurns(
        high_water_tokens=8_000, low_water_tokens=4_000
    )


def test_a_looser_cap_of_its_own_does_not_lift_the_limit() -> None:
    loose = {"kind": "cap_context", "limit_tokens": "64k", "mode": "shadow"}
    may = effective(("tiers/standard/policies", [{"kind": "keep_recent_turns"}, loose]))
    assert may.policies[1:] == (CapContext(limit_tokens=64_000, mode="shadow"), CapContext(limit_tokens=32_000))


def test_without_a_limit_there_is_no_cap() -> None:
    may = effective(("tiers/standard/context", {}))
    assert may.policies == (TrimToolOutput(max_tokens=2_000), KeepRecentTurns())


def test_overrides_go_field_by_field_and_lists_whole() -> None:
    may = effective(
        ("tenants/acme/context", {"low_water_tokens": "8k"}),
        ("tenants/acme/max_tokens", {"limit": 2_048}),
        ("tenants/acme/session", {"max_sessions": 5}),
        ("tenants/acme/budgets", []),
        ("tenants/acme/priority", -1),
    )
    assert may.context.limit_tokens == 32_000 and may.context.low_water_tokens == 8_000
    assert (may.max_tokens.default, may.max_tokens.limit) == (1_024, 2_048)
    assert (may.session.ttl_seconds, may.session.max_sessions) == (1_800, 5)
    assert (may.budgets, may.priority) == ((), -1)
    assert may.policies[1] == KeepRecentTurns(high_water_tokens=24_000, low_water_tokens=8_000)


def test_an_override_can_take_a_limit_away() -> None:
    may = effective(("tenants/acme/max_tokens", {"limit": None}))
    assert (may.max_tokens.default, may.max_tokens.limit) == (1_024, None)


def test_a_model_list_is_an_allow_list() -> None:
    two = [("models/two", {"geometry": "tiny"}), ("pools/main/models", ["demo", "two"])]
    assert effective(*two).models == {"demo", "two"}
    assert effective(*two, ("tenants/acme/models", ["gpt-4o-mini"])).models == {"demo"}
    assert effective(*two, ("tenants/acme/models", [])).models == frozenset()


def test_a_budget_of_bytes_is_written_as_a_size() -> None:
    budget = {"dimension": "kv_read_bytes", "amount": "2TB", "per": "1h", "burst": "500GB"}
    (limit,) = effective(("tiers/standard/budgets", [budget])).budgets
    assert (limit.amount, limit.burst) == (2 * 10**12, 5 * 10**11)


@pytest.mark.parametrize(
    ("dimension", "most", "more"),
    [
        ("total_tokens", 9 * 10**12, 9 * 10**12 + 1),
        ("weighted_tokens", 9 * 10**12, 9 * 10**12 + 1),
        ("kv_read_bytes", 10**24, 10**24 + 1),
        ("kv_byte_seconds", 10**24, "1000000000001TB"),
        ("gpu_seconds", 10**18, "999999999999999d"),
        ("gpu_seconds", 1, 10**400),
        ("money", 10**15, 10**15 + 1),
        ("requests", 9 * 10**12, 1e300),
        ("concurrent_calls", 9 * 10**18, 9 * 10**18 + 1),
    ],
)
def test_an_amount_beyond_all_measure_is_a_mistake(dimension: str, most: object, more: object) -> None:
    place = "tiers.standard.budgets[0].amount"
    budget = {"dimension": dimension} if dimension == "concurrent_calls" else {"dimension": dimension, "every": "month"}
    assert place not in problems(("tiers/standard/budgets", [budget | {"amount": most}]))
    found = problems(("tiers/standard/budgets", [budget | {"amount": more}]))
    assert f" in {dimension}" in found[place]
