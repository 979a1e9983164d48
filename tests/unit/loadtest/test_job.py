"""Counts of a job that the wire shows."""

from array import array

import pytest

from loadtest.job import Choice, Job
from loadtest.sequence import Key, Sequence
from loadtest.utterance import Delta, Utterance


@pytest.mark.parametrize(
    ("prompt_tokens", "cached_tokens", "created_tokens"),
    [(40, 0, 32), (40, 16, 16), (40, 32, 0), (15, 0, 0), (16, 0, 16)],
)
def test_created_is_what_full_blocks_hold_beyond_the_cached(
    prompt_tokens: int, cached_tokens: int, created_tokens: int
) -> None:
    prompt = array("I", range(prompt_tokens))
    said = Utterance(array("I", [7]), (Delta("content", "a"),), "a", "length")
    work = Sequence(Key("r"), prompt + said.tokens, prompt_tokens, 0.0, cached_tokens=cached_tokens)
    job = Job("chatcmpl-r", "r", 0, (Choice(prompt, None, said, work),), prompt_tokens, 16)
    assert (job.cached_tokens, job.created_cache_tokens) == (cached_tokens, created_tokens)


def test_what_the_prefill_engine_had_cached_counts_for_a_handed_over_prompt() -> None:
    prompt = array("I", range(40))
    said = Utterance(array("I", [7]), (Delta("content", "a"),), "a", "length")
    work = Sequence(Key("r"), prompt + said.tokens, 40, 0.0, cached_tokens=32)
    job = Job("chatcmpl-r", "r", 0, (Choice(prompt, None, said, work),), 40, 16, cached_elsewhere_tokens=0)
    assert job.cached_tokens == 0
