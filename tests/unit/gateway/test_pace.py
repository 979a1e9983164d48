"""Predicted seconds: remembered for sizes that are alike, never below the exact ones."""

from hypothesis import given
from hypothesis import strategies as st

from budgets import cost
from config import catalogue
from gateway.pace import USUAL_BATCH, Pace, rounded

MODEL, GPU = catalogue.model("llama-3.1-8b"), catalogue.gpu("h100-sxm")
assert MODEL is not None and GPU is not None
GEOMETRY, HARDWARE = MODEL.geometry, GPU
TOKENS = st.integers(min_value=0, max_value=2_000_000)


@given(tokens=TOKENS)
def test_rounding_is_up_and_by_a_sixteenth_at_most(tokens: int) -> None:
    assert tokens <= rounded(tokens) <= tokens + tokens / 16
    assert rounded(rounded(tokens)) == rounded(tokens)


@given(tokens=st.integers(min_value=0, max_value=31))
def test_small_sizes_are_exact(tokens: int) -> None:
    assert rounded(tokens) == tokens


@given(tokens=TOKENS, more=TOKENS)
def test_rounding_keeps_the_order(tokens: int, more: int) -> None:
    assert rounded(tokens) <= rounded(tokens + more)


def test_seconds_are_those_of_the_rounded_sizes() -> None:
    pace = Pace(GEOMETRY, HARDWARE)
    for _ in range(2):  # made, then remembered
        assert pace.prefill_seconds(1000, 10) == cost.prefill_seconds(GEOMETRY, HARDWARE, rounded(1000), 10)
        expected = cost.decode_seconds(GEOMETRY, HARDWARE, rounded(1000), 20, USUAL_BATCH)
        assert pace.decode_seconds(1000, 20) == expected


@given(tokens=st.integers(min_value=1, max_value=200_000), share=st.floats(min_value=0, max_value=1))
def test_what_is_cached_is_never_slower(tokens: int, share: float) -> None:
    pace = Pace(GEOMETRY, HARDWARE)
    cached = int(tokens * share)
    assert 0 <= pace.prefill_seconds(tokens, cached) <= pace.prefill_seconds(tokens)
