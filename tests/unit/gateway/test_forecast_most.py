"""The most a call can use, which strict limits reserve."""

import json

import pytest

from gateway.counting import Counter
from gateway.forecast import most
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
