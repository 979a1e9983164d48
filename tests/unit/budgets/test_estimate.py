"""Estimates: sensible from the first call, better with every one, never beyond what a call may use."""

import random
from functools import reduce

import pytest

from budgets.estimate import Ask, Bounds, LearnedRatio, Quantile, estimate

FRESH = (LearnedRatio(), Quantile(), Bounds())


def test_a_first_estimate_is_sensible() -> None:
    usage = estimate(Ask(content_bytes=3_000), *FRESH)
    assert (usage.prefill_tokens, usage.cached_tokens, usage.decode_tokens) == (1_000, 0, 512)
    assert usage.source == "estimated"


@pytest.mark.parametrize("tokens_per_byte", [0.22, 0.6, 1.0])
def test_the_ratio_becomes_that_of_the_model(tokens_per_byte: float) -> None:
    generator = random.Random(1)
    ratio = LearnedRatio()
    for _ in range(300):
        size = generator.randint(200, 50_000)
        ratio = ratio.observe(size, round(size * tokens_per_byte * generator.uniform(0.95, 1.05)))
    assert ratio.tokens_per_byte == pytest.approx(tokens_per_byte, rel=0.02)
    assert ratio.bytes <= ratio.window_bytes * 1.001


def test_one_odd_prompt_does_not_decide() -> None:
    ratio = reduce(lambda learned, _: learned.observe(10_000, 2_500), range(200), LearnedRatio())
    assert ratio.observe(100_000_000, 100_000_000).tokens_per_byte < 0.34
    assert ratio.observe(0, 50) == ratio.observe(50, 0) == ratio


def test_learning_changes_nothing_that_was() -> None:
    ratio, quantile = LearnedRatio(), Quantile()
    ratio.observe(10, 10)
    quantile.observe(5)
    assert (ratio, quantile) == (LearnedRatio(), Quantile())


@pytest.mark.parametrize("content_bytes", [0, 1, 2, 7, 10_000_000])
def test_a_prompt_is_at_least_one_token_and_at_most_one_a_byte(content_bytes: int) -> None:
    greedy = LearnedRatio(tokens=100.0, bytes=1.0)
    assert 1 <= greedy.estimate(content_bytes) <= max(1, content_bytes)
    assert LearnedRatio(tokens=0.001, bytes=1e6).estimate(content_bytes) >= 1


@pytest.mark.parametrize("level", [0.5, 0.9, 0.99])
def test_the_quantile_is_met_within_its_bins(level: float) -> None:
    generator = random.Random(2)
    sample = [int(generator.lognormvariate(5, 1)) for _ in range(2_000)]
    quantile = reduce(Quantile.observe, sample, Quantile(level=level))
    true = sorted(sample[-500:])[int(level * 500) - 1]
    assert true / 1.35 <= quantile.estimate(0) <= true * 1.5


def test_what_is_long_past_fades() -> None:
    quantile = reduce(Quantile.observe, [100_000] * 2_000 + [10] * 3_000, Quantile())
    assert quantile.estimate(0) <= 12


@pytest.mark.parametrize("tokens", [0, 1, 2, 3, 100, 5_000, 1_000_000])
def test_a_constant_is_learned_at_once_and_a_fifth_too_high_at_most(tokens: int) -> None:
    learned = Quantile().observe(tokens).estimate(0)
    assert max(1, tokens) <= learned <= max(1, tokens) * 1.2 + 1


def test_the_largest_numbers_have_a_bin() -> None:
    assert Quantile().observe(10**12).estimate(0) > 500_000


@pytest.mark.parametrize(
    ("ask", "decode_tokens"),
    [
        (Ask(100, max_tokens=16), 16),
        (Ask(100, max_tokens=0), 0),
        (Ask(100, max_tokens=-1), 0),
        (Ask(100, max_tokens=None), 300),
        (Ask(100, max_tokens=10_000), 300),
        (Ask(100, sequences=3), 900),
        (Ask(100, sequences=0), 300),
        (Ask(100, max_tokens=10, sequences=4), 40),
        (Ask(100, generates=False), 0),
    ],
)
def test_decode_is_bounded_by_what_the_call_and_the_tier_allow(ask: Ask, decode_tokens: int) -> None:
    learned = Quantile().observe(5_000)
    assert estimate(ask, LearnedRatio(), learned, Bounds(reply_tokens=300)).decode_tokens == decode_tokens


def test_the_tier_bounds_each_prompt() -> None:
    bounded = Bounds(prompt_tokens=1_500)
    assert estimate(Ask(6_000), LearnedRatio(), Quantile(), bounded).prefill_tokens == 1_500
    assert estimate(Ask(6_000, prompts=2), LearnedRatio(), Quantile(), bounded).prefill_tokens == 2_000
    assert estimate(Ask(60_000, prompts=2), LearnedRatio(), Quantile(), bounded).prefill_tokens == 3_000


def test_embeddings_reserve_their_input() -> None:
    usage = estimate(Ask(300, generates=False), *FRESH)
    assert (usage.prefill_tokens, usage.decode_tokens) == (100, 0)


def test_the_tail_is_what_nearly_all_keep_to() -> None:
    learned = reduce(Quantile.observe, [10] * 97 + [1_000] * 3, Quantile())
    assert learned.value is not None
    assert learned.tail is not None
    assert 10 <= learned.value <= 12
    assert 1_000 <= learned.tail <= 1_200
    assert Quantile().tail is None
    assert Quantile.counted({}).tail is None
