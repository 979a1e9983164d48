"""What one call costs: money to the billionth, GPU time by the model's ceilings, bytes held over time."""

import math

import pytest

from budgets.charge import Charge, Spent, Tariff, TokenPrices
from budgets.cost import kv_read_bytes, prefill_flops, weight_read_bytes
from budgets.geometry import Attention, Geometry, Recurrent
from budgets.hardware import Efficiencies, Hardware
from budgets.usage import Usage

LLAMA_8B = Geometry(
    attention=(Attention(layers=32, heads=32, kv_heads=8, head_dim=128),),
    hidden=4096,
    total_params=8_030_000_000,
    active_params=8_030_000_000,
    input_embedding_params=525_336_576,
)
IDEAL = Efficiencies(flops=1, attention_flops=1, weight_read=1, kv_read=1, step_seconds=0, sequence_seconds=0)
H100 = Hardware(
    name="h100", bf16_flops=989e12, memory_bytes=80 * 10**9, memory_bytes_per_second=3.35e12, efficiencies=IDEAL
)
LIST = TokenPrices(input_nanos=100_000_000, cached_nanos=10_000_000, output_nanos=400_000_000)  # 0.10, 0.01, 0.40
CALL = Usage.reported(6_074, 3_456, 285, reasoning_tokens=200)


def read(used: Usage, choices: int = 1) -> int:
    return choices * kv_read_bytes(LLAMA_8B, used.prompt_tokens, used.decode_tokens // choices)


def test_a_price_list_charges_each_kind_of_token_once() -> None:
    by_hand = (6_074 - 3_456) * 0.10 / 1e6 + 3_456 * 0.01 / 1e6 + 285 * 0.40 / 1e6
    assert LIST.of(CALL) == round(by_hand * 1e9) == 410_360


def test_money_is_rounded_up_once_for_a_whole_call() -> None:
    tiny = TokenPrices(1, 1, 1)  # a billionth for a million tokens
    assert [tiny.of(Usage.reported(prompt, None, 1)) for prompt in (0, 999_999, 1_000_000)] == [1, 1, 2]
    assert tiny.of(Usage.reported(0, None, 0)) == 0


def test_gpu_time_is_the_work_at_the_ceilings() -> None:
    batch = 16
    prefill = prefill_flops(LLAMA_8B, CALL.prompt_tokens, CALL.cached_tokens) / 989e12
    weights = weight_read_bytes(LLAMA_8B, batch) / batch * CALL.decode_tokens / 3.35e12
    seconds = prefill + weights + read(CALL) / 3.35e12
    micros = Tariff(LLAMA_8B, H100).gpu_microseconds(CALL, batch, read(CALL))
    assert micros == pytest.approx(seconds * 1e6, abs=1.001)


def test_a_larger_batch_shares_the_weights() -> None:
    tariff = Tariff(LLAMA_8B, H100)
    alone, shared, full = (tariff.gpu_microseconds(CALL, batch, read(CALL)) for batch in (1, 16, 100_000))
    assert alone > 5 * shared > shared > full
    bound = (prefill_flops(LLAMA_8B, 6_074, 3_456) + 2 * (8_030_000_000 - 525_336_576) * 285) / 989e12
    assert full == pytest.approx((bound + read(CALL) / 3.35e12) * 1e6, abs=1.001), "by its own FLOPs in the end"


def test_every_device_of_a_replica_is_paid() -> None:
    quick = H100.model_copy(update={"all_reduce_latency_seconds": 0.0, "all_reduce_bytes_per_second": 1e30})
    one, four = (Tariff(LLAMA_8B, quick.scaled(count)).gpu_microseconds(CALL, 8, read(CALL)) for count in (1, 4))
    assert four == pytest.approx(one, rel=1e-4)


def test_gpu_hours_have_a_price_and_a_list_goes_before_it() -> None:
    spent = Spent(0.1, 2.0, 8)
    hourly = Tariff(LLAMA_8B, H100, hour_nanos=2_490_000_000).charge(CALL, 1, spent, read(CALL))
    assert hourly.money_nanos == math.ceil(hourly.gpu_microseconds * 2.49 / 3.6)
    listed = Tariff(LLAMA_8B, H100, LIST, 2_490_000_000).charge(CALL, 1, spent, read(CALL))
    assert listed == Charge(hourly.kv_byte_seconds, hourly.gpu_microseconds, LIST.of(CALL))
    assert Tariff(LLAMA_8B, H100).charge(CALL, 1, spent, read(CALL)).money_nanos == 0


def test_bytes_held_are_the_prompts_all_the_time_and_the_replies_as_they_grow() -> None:
    used, k = Usage.reported(1_000, None, 3), 131_072
    tariff = Tariff(LLAMA_8B, H100)
    assert tariff.byte_seconds(used, 1, Spent(2.0, 0.0)) == 1_000 * k * 2
    assert tariff.byte_seconds(used, 1, Spent(2.0, 3.0)) == 1_000 * k * 5 + (0 + 1 + 2) * k
    assert tariff.byte_seconds(Usage.reported(1_000, None, 0), 1, Spent(0.0, 1.0)) == 1_000 * k


def test_replies_to_one_prompt_share_it_but_not_their_states() -> None:
    hybrid = Geometry(
        attention=LLAMA_8B.attention,
        recurrent=(Recurrent(layers=1, heads=1, key_dim=4, value_dim=4),),
        hidden=4096,
        total_params=8_030_000_000,
        active_params=8_030_000_000,
    )
    tariff, used = Tariff(hybrid, H100), Usage.reported(1_000, None, 6)
    assert tariff.byte_seconds(used, 2, Spent(0.0, 3.0)) == (1_000 * 131_072 + 2 * 64) * 3 + 2 * (0 + 1 + 2) * 131_072


def test_prompts_of_one_call_do_not_attend_to_each_other() -> None:
    tariff, hundred = Tariff(LLAMA_8B, H100), Usage.reported(100 * 1_000, None, 0)
    one = tariff.gpu_microseconds(Usage.reported(1_000, None, 0), 1, 0)
    assert tariff.gpu_microseconds(hundred, 1, 0, prompts=100) == pytest.approx(100 * one, abs=100)
    assert tariff.gpu_microseconds(hundred, 1, 0) > 130 * one
