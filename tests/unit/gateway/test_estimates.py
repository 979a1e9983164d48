"""What is reserved for every shape of request that a client may send: always something, never more than it may use."""

import json
from typing import Any

import pytest

from budgets.cost import kv_read_bytes
from budgets.usage import Usage
from gateway.call import Call
from gateway.counting import Counter
from gateway.dialects.base import Dialect
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.errors import InvalidRequest
from gateway.forecast import Forecast, most
from gateway.service import Service
from tests.unit.gateway.samples import caller, model

CHAT, TEXT, EMBED = OpenAIChat(), OpenAICompletions(), OpenAIEmbeddings()
HELLO = [{"role": "user", "content": "Hello!"}]
UNBOUND: tuple[str, Any] = ("tiers/standard/max_tokens", {})
READS: tuple[str, Any] = ("tiers/standard/budgets", [{"dimension": "kv_read_bytes", "amount": "2TB", "per": "1h"}])


def service(*changes: tuple[str, Any]) -> Service:
    return Service(caller(*changes), model(*changes), (), Counter(len))


def parsed(dialect: Dialect, fields: dict[str, Any]) -> Call:
    return dialect.parse(json.dumps({"model": "demo"} | fields).encode())


@pytest.mark.parametrize(
    ("dialect", "fields", "decode_tokens"),
    [
        (CHAT, {"messages": HELLO}, 512),
        (CHAT, {"messages": HELLO, "max_tokens": None}, 512),
        (CHAT, {"messages": HELLO, "max_tokens": 9}, 9),
        (CHAT, {"messages": HELLO, "max_tokens": "9"}, 9),
        (CHAT, {"messages": HELLO, "max_completion_tokens": 7, "max_tokens": 9}, 7),
        (CHAT, {"messages": HELLO, "max_tokens": 9, "n": 4}, 36),
        (CHAT, {"messages": HELLO, "max_tokens": 9, "n": None}, 9),
        (CHAT, {"messages": [{"role": "user", "content": ""}]}, 512),
        (CHAT, {"messages": [{"role": "user"}]}, 512),
        (CHAT, {"messages": [{}]}, 512),
        (TEXT, {"prompt": "Hello", "max_tokens": 9}, 9),
        (TEXT, {"prompt": "Hello", "max_tokens": 9, "n": 2, "best_of": 5}, 45),
        (TEXT, {"prompt": ["one", "two", "three"], "max_tokens": 9, "n": 2}, 54),
        (TEXT, {"prompt": [1, 2, 3], "max_tokens": 9}, 9),
        (TEXT, {"prompt": ""}, 512),
        (TEXT, {"prompt": []}, 512),
        (TEXT, {"prompt": None}, 512),
        (TEXT, {}, 512),
        (EMBED, {"input": "Hello"}, 0),
        (EMBED, {"input": ["Hello", "you"]}, 0),
        (EMBED, {"input": ""}, 0),
        (EMBED, {}, 0),
    ],
)
def test_something_sensible_is_reserved(dialect: Dialect, fields: dict[str, Any], decode_tokens: int) -> None:
    call, at = parsed(dialect, fields), service(UNBOUND)
    expected = Forecast().usage(call, at)
    assert expected.decode_tokens == decode_tokens
    assert 1 <= expected.prompt_tokens <= max(1, call.content_bytes)
    amounts = at.costs.amounts(expected, call.choices, call.prompts)
    assert amounts["requests"] == 1
    assert amounts["total_tokens"] >= 1


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
@pytest.mark.parametrize("value", [0, -1, "x", 1.5, True])
def test_a_limit_on_tokens_that_is_none_is_named(field: str, value: object) -> None:
    for dialect, rest in ((CHAT, {"messages": HELLO}), (TEXT, {"prompt": "Hello"})):
        with pytest.raises(InvalidRequest) as raised:
            parsed(dialect, rest | {field: value})
        assert raised.value.param == field


@pytest.mark.parametrize("field", ["n", "best_of"])
@pytest.mark.parametrize("value", [0, -1, 129])
def test_a_number_of_choices_that_is_none_is_named(field: str, value: int) -> None:
    with pytest.raises(InvalidRequest) as raised:
        parsed(TEXT, {"prompt": "Hello", field: value})
    assert raised.value.param == field


@pytest.mark.parametrize(
    ("tier", "asked", "decode_tokens"),
    [
        ({"default": 100}, None, 100),
        ({"limit": 50}, None, 50),
        ({"default": 100, "limit": 200}, 9_000, 200),
        ({"default": 100, "limit": 200}, 150, 150),
    ],
)
def test_a_reply_is_never_taken_for_longer_than_it_may_be(
    tier: dict[str, int], asked: int | None, decode_tokens: int
) -> None:
    at, forecast = service(("tiers/standard/max_tokens", tier)), Forecast()
    call = parsed(CHAT, {"messages": HELLO, "max_tokens": asked})
    forecast.learn(call, at, Usage.reported(5, None, 90_000), None)
    assert forecast.usage(call, at).decode_tokens == decode_tokens == most(call, at).decode_tokens


def test_each_prompt_of_a_list_reads_its_own_context() -> None:
    at = service(READS)
    geometry = at.model.geometry
    several = parsed(TEXT, {"prompt": ["a" * 300] * 3, "max_tokens": 10, "n": 2})
    used = Usage.reported(300, None, 60)
    read = at.costs.amounts(used, several.choices, several.prompts)["kv_read_bytes"]
    assert read == 6 * kv_read_bytes(geometry, 100, 10)
    assert at.costs.kv_read_bytes(Usage.reported(301, None, 60), 6, 3) == 6 * kv_read_bytes(geometry, 101, 10)
    one = parsed(TEXT, {"prompt": "a" * 300, "max_tokens": 10, "n": 2})
    assert at.costs.amounts(Usage.reported(100, None, 20), one.choices, one.prompts)["kv_read_bytes"] * 3 == read


def test_replies_that_an_engine_may_choose_from_are_reserved_and_what_came_back_is_charged_and_learned() -> None:
    """vLLM and llama.cpp take `best_of` and compute `n`; what an engine reports is what it came to."""
    at, forecast = service(READS), Forecast()
    call = parsed(TEXT, {"prompt": "a" * 300, "max_tokens": 100, "best_of": 5})
    assert (call.choices, call.sequences) == (1, 5)
    expected, amounts, _ = forecast.asked(call, at)
    assert expected.decode_tokens == amounts["decode_tokens"] == 500
    assert amounts["kv_read_bytes"] == 5 * kv_read_bytes(at.model.geometry, expected.prompt_tokens, 100)
    used = Usage.reported(100, None, 90)
    assert at.costs.kv_read_bytes(used, call.choices, call.prompts) == kv_read_bytes(at.model.geometry, 100, 90)
    forecast.learn(call, at, used, None)
    again = parsed(TEXT, {"prompt": "a" * 300})
    assert 90 <= forecast.usage(again, at).decode_tokens <= 110


def test_an_answer_that_cannot_ask_for_more_reserves_what_nearly_all_keep_to() -> None:
    at, forecast = service(UNBOUND), Forecast()
    call = parsed(CHAT, {"messages": HELLO})
    assert forecast.sure(call, at, forecast.usage(call, at)) == forecast.usage(call, at), "nothing is known"
    for tokens in [50] * 95 + [2_000] * 5:
        forecast.learn(call, at, Usage.reported(5, None, tokens), None)
    expected = forecast.usage(call, at)
    sure = forecast.sure(call, at, expected)
    assert expected.decode_tokens < 70
    assert 2_000 <= sure.decode_tokens <= 2_400
    assert sure.prompt_tokens == expected.prompt_tokens
    bound = parsed(CHAT, {"messages": HELLO, "max_tokens": 90, "n": 2})
    assert forecast.sure(bound, at, forecast.usage(bound, at)).decode_tokens == 180
    embedding = parsed(EMBED, {"input": "Hello"})
    assert forecast.sure(embedding, at, forecast.usage(embedding, at)).decode_tokens == 0
