"""Step times and sizes of a named GPU and model."""

import pytest

from config import catalogue
from loadtest.roofline import Roofline
from loadtest.scheduler import Limits, Scheduler
from tests.unit.loadtest.stepping import run, sequence

LLAMA = Roofline(catalogue.models()["llama-3.1-8b"].geometry, catalogue.gpus()["h100-sxm"])


def seconds(context_tokens: int, sequences: int) -> float:
    """The last decode step of equal sequences."""
    scheduler = Scheduler(Limits(1_000_000, 256, 16, 100_000, prefix_caching=False))
    for at in range(sequences):
        scheduler.add(sequence(str(at), range(context_tokens), 2))
    return LLAMA.seconds(run(scheduler)[-1])


def test_one_decode_step_takes_what_reading_the_weights_takes() -> None:
    """8.03 B parameters in bf16 less the input embedding, at 3.35 TB/s: 4.5 ms at full bandwidth."""
    assert 0.0045 < seconds(1000, 1) < 0.0075


def test_a_long_context_costs_every_token() -> None:
    assert seconds(4000, 64) > 1.5 * seconds(1000, 64)


def test_batching_is_cheaper_than_one_by_one() -> None:
    assert seconds(1000, 16) < 4 * seconds(1000, 1)


def test_bytes_read_are_weights_and_context() -> None:
    scheduler = Scheduler(Limits(8192, 8, 16, 1000))
    scheduler.add(sequence("a", range(1000), 2))
    prefill, decode = run(scheduler)
    grown = LLAMA.read_bytes(decode) - LLAMA.read_bytes(prefill)
    assert grown == 1000 * 128 * 1024, "131,072 bytes of KV a token"
    assert LLAMA.flops(prefill) > 900 * LLAMA.flops(decode)


def test_capacity_is_memory_less_weights() -> None:
    """0.9 of 80 GB less 16 GB of weights and 3 GB beside: some 53 GB, 128 KiB a token."""
    assert 20_000 < LLAMA.blocks(16, 0.9) < 27_000


def test_a_model_that_does_not_fit_is_told_in_one_line() -> None:
    large = Roofline(catalogue.models()["llama-3.1-70b"].geometry, catalogue.gpus()["h100-sxm"])
    with pytest.raises(ValueError, match="no room for KV cache on 1 x"):
        large.blocks(16, 0.9)
