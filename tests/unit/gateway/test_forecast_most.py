"""The most a call can use, which strict limits reserve."""

import json

import pytest

from gateway.counting import Counter
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.forecast import Forecast, most
from gateway.service import Service
from tests.unit.gateway.samples import call, caller, model

TEXT = "word " * 400


def asked(**fields: object) -> tuple[int, int]:
    body = {"model": "demo", "messages": [{"role": "user", "content": TEXT}]} | fields
    found = most(call(json.dumps(body).encode()), Service(caller(), model(), (), Counter(len)))
    return found.prompt_tokens, found.decode_tokens


@pytest.mark.parametrize(
    ("fields", "decode"), [({}, 1024), ({"max_tokens": 7}, 7), ({"max_tokens": 9_999}, 4096), ({"n": 3}, 3 * 1024)]
)
def test_a_reply_ends_at_its_limit(fields: dict[str, object], decode: int) -> None:
    assert asked(**fields)[1] == decode


def test_a_token_is_at_least_a_byte_and_no_prompt_is_longer_than_the_limit() -> None:
    assert len(TEXT) <= asked()[0] <= len(TEXT) + 100
    assert asked(messages=[{"role": "user", "content": TEXT * 100}])[0] == 32_000


def test_the_limit_of_a_context_bounds_one_prompt_and_not_a_list_of_them() -> None:
    """However many prompts a body has, each may be as long as the limit lets it."""
    prompts = [TEXT] * 100
    at = Service(caller(), model(), (), Counter(len))
    text = OpenAICompletions().parse(json.dumps({"model": "demo", "prompt": prompts, "max_tokens": 1}).encode())
    embedding = OpenAIEmbeddings().parse(json.dumps({"model": "demo", "input": prompts}).encode())
    for several in (text, embedding):
        assert most(several, at).prompt_tokens >= len(TEXT) * 100
        assert Forecast().usage(several, at).prompt_tokens >= len(TEXT) * 100 / 3
