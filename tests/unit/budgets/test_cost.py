"""Costs against figures worked out by hand and published ones."""

import pytest

from budgets.cost import (
    capped_sum,
    decode_seconds,
    kv_byte_seconds,
    kv_capacity_tokens,
    kv_read_bytes,
    prefill_flops,
    prefill_seconds,
    step_seconds,
    weight_read_bytes,
)
from budgets.geometry import Attention, Geometry, Recurrent
from budgets.hardware import Efficiencies, Hardware

LLAMA_8B = Geometry(
    attention=(Attention(layers=32, heads=32, kv_heads=8, head_dim=128),),
    hidden=4096,
    total_params=8_030_000_000,
    active_params=8_030_000_000,
    input_embedding_params=525_336_576,
)
MIXTURE = Geometry(
    attention=(Attention(layers=48, heads=32, kv_heads=4, head_dim=128),),
    hidden=2048,
    total_params=30_500_000_000,
    active_params=3_300_000_000,
    experts=128,
    experts_per_token=8,
)
IDEAL = Efficiencies(flops=1, attention_flops=1, weight_read=1, kv_read=1, step_seconds=0, sequence_seconds=0)
H100 = Hardware(
    name="h100", bf16_flops=989e12, memory_bytes=80 * 10**9, memory_bytes_per_second=3.35e12, efficiencies=IDEAL
)


def test_kv_read_is_the_closed_form() -> None:
    k, length, generated = 131_072, 4_000, 500
    expected = k * (generated * length + generated * (generated - 1) // 2)
    assert kv_read_bytes(LLAMA_8B, length, generated) == expected


def test_nothing_generated_reads_nothing() -> None:
    assert kv_read_bytes(LLAMA_8B, 4_000, 0) == 0
    assert kv_read_bytes(LLAMA_8B, 0, 1) == 0


def test_recurrent_state_is_read_with_every_token() -> None:
    state = Recurrent(layers=1, heads=1, key_dim=4, value_dim=4)
    only_state = Geometry(recurrent=(state,), hidden=8, total_params=10, active_params=10)
    assert kv_read_bytes(only_state, 1_000, 3) == 3 * 64


def test_sparse_attention_reads_its_choice_and_the_whole_index() -> None:
    sparse = Attention(layers=2, heads=1, head_dim=8, top_k_tokens=10, index_bytes=5)
    geometry = Geometry(attention=(sparse,), hidden=8, total_params=10, active_params=10)
    assert kv_read_bytes(geometry, 100, 1) == 2 * 16 * 2 * 10 + 2 * 5 * 100


@pytest.mark.parametrize(
    ("first", "count", "cap", "expected"),
    [(3, 4, None, 18), (3, 4, 5, 17), (3, 4, 2, 8), (0, 0, 9, 0), (0, 3, 9, 3), (9, -1, None, 0)],
)
def test_capped_sum(first: int, count: int, cap: int | None, expected: int) -> None:
    assert capped_sum(first, count, cap) == expected


def test_prefill_flops_of_a_prompt_and_of_what_is_not_cached() -> None:
    linear = 2 * (8_030_000_000 - 525_336_576)
    pairs = 1_000 * 1_001 // 2
    assert prefill_flops(LLAMA_8B, 1_000) == linear * 1_000 + 4 * 32 * 32 * 128 * pairs
    assert prefill_flops(LLAMA_8B, 1_000, 1_000) == 0
    parts = prefill_flops(LLAMA_8B, 600) + prefill_flops(LLAMA_8B, 1_000, 600)
    assert parts == prefill_flops(LLAMA_8B, 1_000)


def test_a_batch_touches_more_and_more_experts() -> None:
    assert weight_read_bytes(MIXTURE, 0) == 0
    assert weight_read_bytes(MIXTURE, 1) == 2 * 3_300_000_000
    experts = 27.2e9 * 128 / 120  # parameters of all experts, for 27.2 G that one token leaves untouched
    touched = 1 - (1 - 8 / 128) ** 64
    assert touched == pytest.approx(0.98, abs=0.005)
    assert weight_read_bytes(MIXTURE, 64) == pytest.approx(2 * (30.5e9 - experts * (1 - touched)))
    assert weight_read_bytes(MIXTURE, 100_000) == 2 * 30_500_000_000


def test_held_bytes_over_time() -> None:
    assert kv_byte_seconds(LLAMA_8B, 100, 0, 2.0) == 100 * 131_072 * 2.0
    assert kv_byte_seconds(LLAMA_8B, 100, 3, 2.0) == 101 * 131_072 * 2.0  # 100, 101, 102: 101 in the mean


@pytest.mark.parametrize(("batch", "context", "milliseconds"), [(1, 1_000, 4.5), (64, 1_000, 7.0), (64, 4_000, 14.5)])
def test_floors_of_a_decode_step_on_an_h100(batch: int, context: int, milliseconds: float) -> None:
    """At the full bandwidth: 15.0 GB of weights read (the embedding is not) and 131 kB a token."""
    seconds = decode_seconds(LLAMA_8B, H100, context, 1, batch)
    assert seconds * 1_000 == pytest.approx(milliseconds, abs=0.1)


def test_shorter_contexts_halve_a_large_batch() -> None:
    """Published: cutting 4k to 1k of context at a batch of 64 takes 51 % off the ITL of an 8B model."""
    long, short = (decode_seconds(LLAMA_8B, H100, context, 1, 64) for context in (4_096, 1_024))
    assert 1 - short / long == pytest.approx(0.51, abs=0.02)


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    assert prefill_seconds(LLAMA_8B, H100, 8_192) == pytest.approx(prefill_flops(LLAMA_8B, 8_192) / 989e12)
    assert prefill_seconds(LLAMA_8B, H100, 8_192, 8_192) == 0


def test_a_short_prompt_is_bound_by_reading_the_weights() -> None:
    assert prefill_seconds(LLAMA_8B, H100, 8) == pytest.approx(2 * (8.03e9 - 525_336_576) / 3.35e12, rel=0.01)


def test_a_mixed_step_costs_less_than_its_parts_and_more_than_each() -> None:
    prefill = step_seconds(LLAMA_8B, H100, prefill=[(512, 0)], decode_context_tokens=0, decode_sequences=0)
    decode = step_seconds(LLAMA_8B, H100, prefill=[], decode_context_tokens=64_000, decode_sequences=32)
    mixed = step_seconds(LLAMA_8B, H100, prefill=[(512, 0)], decode_context_tokens=64_000, decode_sequences=32)
    assert max(prefill, decode) < mixed < prefill + decode


def test_an_empty_step_takes_no_time() -> None:
    assert step_seconds(LLAMA_8B, H100, prefill=[], decode_context_tokens=0, decode_sequences=0) == 0
    assert decode_seconds(LLAMA_8B, H100, 1_000, 0) == 0


def test_kv_heads_divide_over_devices_and_then_no_further() -> None:
    free = H100.model_copy(update={"all_reduce_latency_seconds": 0.0, "all_reduce_bytes_per_second": 1e30})
    one, eight, sixteen = (decode_seconds(LLAMA_8B, free.scaled(count), 10**6, 1) for count in (1, 8, 16))
    kv, weights = 10**6 * 131_072 / 3.35e12, 2 * (8_030_000_000 - 525_336_576) / 3.35e12
    assert one == pytest.approx(kv + weights)
    assert eight == pytest.approx(kv / 8 + weights / 8)
    assert sixteen == pytest.approx(kv / 8 + weights / 16)


def test_devices_pay_for_talking_to_each_other() -> None:
    slow = H100.model_copy(update={"all_reduce_latency_seconds": 1e-5, "all_reduce_bytes_per_second": 14e9})
    quick = H100.model_copy(update={"all_reduce_latency_seconds": 0.0, "all_reduce_bytes_per_second": 1e30})
    by_hand = 2 * 32 * (1e-5 + 2 * 64 * 4096 / 14e9)
    difference = decode_seconds(LLAMA_8B, slow.scaled(2), 100, 1, 64) - decode_seconds(
        LLAMA_8B, quick.scaled(2), 100, 1, 64
    )
    assert difference == pytest.approx(by_hand)


def test_what_fits_beside_the_weights() -> None:
    free = 0.9 * 80e9 - 2 * 8.03e9 - 3e9
    assert kv_capacity_tokens(LLAMA_8B, H100) == int(free / 131_072)
    assert kv_capacity_tokens(LLAMA_8B, H100, memory_share=0.1) == 0


def test_replicated_kv_heads_take_their_share_of_the_memory() -> None:
    one_head = LLAMA_8B.model_copy(update={"attention": (Attention(layers=32, heads=32, kv_heads=1, head_dim=128),)})
    free = 0.9 * 160e9 - 2 * 8.03e9 - 6e9
    assert kv_capacity_tokens(one_head, H100.scaled(2)) == int(free / (16_384 * 2))
