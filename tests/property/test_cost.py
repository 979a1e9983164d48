"""The closed forms equal the sums over single steps, for every kind of layer."""

from itertools import combinations, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from budgets.charge import Charge, Spent, Tariff
from budgets.cost import (
    attention_flops,
    capped_sum,
    decode_flops,
    kv_byte_seconds,
    kv_read_bytes,
    kv_written_bytes,
    linear_flops,
    prefill_flops,
    read_bytes,
    transfer_bytes,
    weight_read_bytes,
)
from budgets.geometry import Attention, Geometry, Recurrent
from budgets.hardware import Hardware
from budgets.usage import Usage

small = st.integers(1, 8)
caps = st.none() | st.integers(1, 50)

attentions = st.builds(
    Attention,
    layers=small,
    heads=small,
    kv_heads=small,
    head_dim=small,
    value_dim=st.none() | small,
    latent_width=st.none() | small,
    window_tokens=caps,
    top_k_tokens=caps,
    index_bytes=st.integers(0, 9),
)
states = st.builds(Recurrent, layers=small, heads=small, key_dim=small, value_dim=small, conv_width=st.integers(0, 9))
geometries = st.builds(
    Geometry,
    attention=st.lists(attentions, min_size=1, max_size=3).map(tuple),
    recurrent=st.lists(states, max_size=2).map(tuple),
    hidden=small,
    total_params=st.just(1_000),
    active_params=st.just(1_000),
    kv_dtype=st.sampled_from(["bf16", "fp8", "nvfp4"]),
)


def read_in_one_step(geometry: Geometry, context: int) -> int:
    """What a single decode step reads, layer by layer."""
    read = sum(state.state_bytes for state in geometry.recurrent)
    for group in geometry.attention:
        kept = min(context, group.window_tokens) if group.window_tokens else context
        chosen = min(kept, group.top_k_tokens) if group.top_k_tokens else kept
        read += chosen * group.kv_bytes(geometry.kv_dtype) + kept * group.layers * group.index_bytes
    return read


@given(geometries, st.integers(0, 200), st.integers(0, 60))
def test_kv_read_bytes_is_the_sum_over_steps(geometry: Geometry, prompt: int, generated: int) -> None:
    by_step = sum(read_in_one_step(geometry, prompt + step) for step in range(generated))
    assert kv_read_bytes(geometry, prompt, generated) == by_step


def written_by_one_token(geometry: Geometry) -> int:
    """Keys and values of every layer, counted one by one, and the index of sparse attention."""
    written = 0
    for group in geometry.attention:
        for _ in range(group.layers):
            values = group.latent_width or group.kv_heads * (group.head_dim + (group.value_dim or group.head_dim))
            bits = {"bf16": 16, "fp8": 8, "nvfp4": 4.5}[geometry.kv_dtype]
            written += int(-(-values * bits // 8)) + group.index_bytes
    return written


@given(geometries, st.integers(0, 200), st.integers(0, 200), st.integers(0, 60))
def test_kv_written_is_the_sum_over_tokens_and_steps(geometry: Geometry, new: int, cached: int, generated: int) -> None:
    states = sum(state.state_bytes for state in geometry.recurrent)
    by_step = (new * written_by_one_token(geometry) + states) if new else 0
    by_step += sum(written_by_one_token(geometry) + states for _ in range(generated))
    assert kv_written_bytes(geometry, new + cached, cached, generated) == by_step


@given(geometries, st.integers(0, 200))
def test_what_is_handed_over_is_what_a_window_and_the_states_still_hold(geometry: Geometry, context: int) -> None:
    held = sum(state.state_bytes for state in geometry.recurrent)
    for group in geometry.attention:
        kept = context if group.window_tokens is None else min(context, group.window_tokens)
        held += group.kv_bytes(geometry.kv_dtype) * kept + group.layers * group.index_bytes * context
    assert transfer_bytes(geometry, context) == held


def attended(geometry: Geometry, position: int) -> int:
    """FLOPs of the attention of the token at a position (from 0): to itself and to as many before it as it may see."""
    flops = 0
    for group in geometry.attention:
        caps = [cap for cap in (group.window_tokens, group.top_k_tokens) if cap is not None]
        seen = min([position + 1, *caps])
        flops += 2 * group.layers * group.heads * (group.head_dim + (group.value_dim or group.head_dim)) * seen
    return flops


@given(geometries, st.integers(0, 80), st.integers(0, 80), st.integers(0, 40))
def test_flops_are_the_sum_over_tokens(geometry: Geometry, cached: int, new: int, generated: int) -> None:
    prompt = cached + new
    in_prefill = sum(attended(geometry, at) for at in range(cached, prompt))
    assert prefill_flops(geometry, prompt, cached) == linear_flops(geometry, new) + in_prefill
    in_decode = sum(attended(geometry, at) for at in range(prompt, prompt + generated))
    assert decode_flops(geometry, prompt, generated) == linear_flops(geometry, generated) + in_decode


@given(geometries, st.integers(0, 80), st.integers(0, 80), st.integers(1, 40))
def test_all_that_a_lone_call_reads_is_the_sum_over_its_steps(
    geometry: Geometry, cached: int, new: int, generated: int
) -> None:
    """A step for the prefill, which gives the first token, and one for each further token."""
    prompt, weights = cached + new, weight_read_bytes(geometry, 1)
    kv = sum(read_in_one_step(geometry, prompt + step) for step in range(generated))
    assert read_bytes(geometry, prompt, cached, generated) == generated * weights + kv


@pytest.mark.parametrize(("experts", "chosen", "batch"), [(4, 2, 1), (4, 2, 3), (5, 1, 4), (6, 5, 2), (3, 3, 2)])
def test_experts_touched_are_the_mean_over_every_routing(experts: int, chosen: int, batch: int) -> None:
    shared, expert = 1_000, 60
    geometry = Geometry(
        attention=(Attention(layers=1, heads=1, head_dim=1),),
        hidden=1,
        total_params=shared + experts * expert,
        active_params=shared + chosen * expert,
        experts=experts,
        experts_per_token=chosen,
    )
    routings = list(product(combinations(range(experts), chosen), repeat=batch))
    touched = sum(len(set().union(*routing)) for routing in routings) / len(routings)
    assert weight_read_bytes(geometry, batch) == round(2 * (shared + touched * expert))


seconds = st.floats(0, 100)
H100 = Hardware(name="h100", bf16_flops=989e12, memory_bytes=80 * 10**9, memory_bytes_per_second=3.35e12)


@given(geometries, st.integers(0, 99), st.integers(0, 40), st.integers(1, 3), seconds, seconds)
def test_bytes_held_over_time_are_the_sum_over_the_tokens_as_they_come(
    geometry: Geometry, prompt: int, generated: int, choices: int, before: float, after: float
) -> None:
    """The prompt once, each reply's own tokens and state as they grow, a token of each at a time."""
    state = geometry.state_bytes
    held = (geometry.kept_bytes(prompt) - state + choices * state) * (before + after)
    for token in range(generated):
        own = geometry.kept_bytes(prompt + token) - geometry.kept_bytes(prompt)
        held += choices * own * after / generated
    used = Usage.reported(prompt, None, generated * choices)
    byte_seconds = Tariff(geometry, H100).byte_seconds(used, choices, Spent(before, after))
    assert byte_seconds == pytest.approx(held, rel=1e-9, abs=1)


usages = st.builds(Usage.reported, st.integers(0, 10**5), st.integers(0, 10**5), st.integers(0, 10**4))


@given(geometries, usages, st.integers(0, 99), st.integers(0, 99), st.integers(1, 99))
def test_more_tokens_never_cost_less(geometry: Geometry, used: Usage, prompt: int, decode: int, batch: int) -> None:
    more = Usage(used.prefill_tokens + prompt, used.cached_tokens, used.decode_tokens + decode, "engine")
    tariff = Tariff(geometry, H100, hour_nanos=10**9)
    charges = [
        tariff.charge(each, 1, Spent(1.0, 1.0, batch), kv_read_bytes(geometry, each.prompt_tokens, each.decode_tokens))
        for each in (used, more)
    ]
    for few, many in zip(*map(tuple_of, charges), strict=True):
        assert isinstance(few, int) and 0 <= few <= many


def tuple_of(charge: Charge) -> tuple[int, int, int]:
    return charge.kv_byte_seconds, charge.gpu_microseconds, charge.money_nanos


@given(geometries, st.integers(0, 200), st.integers(0, 40), st.integers(0, 40))
def test_kv_read_bytes_adds_up_over_parts_of_a_reply(geometry: Geometry, prompt: int, first: int, then: int) -> None:
    parts = kv_read_bytes(geometry, prompt, first) + kv_read_bytes(geometry, prompt + first, then)
    assert parts == kv_read_bytes(geometry, prompt, first + then)


@given(st.integers(0, 99), st.integers(0, 99), caps)
def test_capped_sum_is_the_sum(first: int, count: int, cap: int | None) -> None:
    limit = first + count if cap is None else cap
    assert capped_sum(first, count, cap) == sum(min(first + step, limit) for step in range(count))


@given(geometries, st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_prefill_in_chunks_costs_what_it_costs_at_once(geometry: Geometry, cached: int, one: int, two: int) -> None:
    chunks = attention_flops(geometry, one, cached) + attention_flops(geometry, two, cached + one)
    assert chunks == attention_flops(geometry, one + two, cached)


@given(geometries, st.integers(0, 200), st.integers(1, 40))
def test_held_bytes_are_the_mean_over_the_growth(geometry: Geometry, context: int, new: int) -> None:
    mean = sum(geometry.kept_bytes(context + step) for step in range(new)) / new
    assert abs(kv_byte_seconds(geometry, context, new, 1.0) - mean) <= 1e-9 * mean


@given(st.integers(2, 256), st.data())
def test_a_larger_batch_never_reads_fewer_weights(experts: int, data: st.DataObject) -> None:
    geometry = Geometry(
        attention=(Attention(layers=1, heads=1, head_dim=1),),
        hidden=1,
        total_params=10**9,
        active_params=10**8,
        experts=experts,
        experts_per_token=data.draw(st.integers(1, experts)),
    )
    reads = [weight_read_bytes(geometry, batch) for batch in (1, 2, 8, 64, 4096)]
    assert reads == sorted(reads) and reads[0] == 2 * 10**8 and reads[-1] <= 2 * 10**9
