"""Bodies that vLLM refuses, beyond those that were recorded."""

import json

import pytest

from loadtest.engine_settings import Settings
from loadtest.openai_requests import ChatBody, CompletionBody, check, check_prompt, manner, read
from loadtest.wire_errors import WireError

SETTINGS = Settings(served_model_name="tiny", max_model_len=2048)


def refused(**fields: object) -> tuple[int, str | None]:
    """Status and param of the refusal."""
    raw = json.dumps({"messages": [{"role": "user", "content": "hi"}], **fields}).encode()
    with pytest.raises(WireError) as raised:
        check(read(ChatBody, "application/json; charset=utf-8", raw), SETTINGS)
    assert isinstance(raised.value.body, dict)
    return raised.value.status, raised.value.body["error"]["param"]


@pytest.mark.parametrize("salt", ["", "a/b", "a@b", "a\\b", "a\0b", "x" * 129])
def test_a_salt_is_short_and_plain(salt: str) -> None:
    assert refused(cache_salt=salt) == (400, "cache_salt")


def test_options_need_a_stream() -> None:
    assert refused(stream_options={"include_usage": True}) == (400, "stream_options")


def test_a_priority_needs_priority_scheduling() -> None:
    assert refused(priority=1) == (400, None)


def test_the_bound_is_named_as_the_client_named_it() -> None:
    assert refused(max_completion_tokens=5000) == (400, "max_completion_tokens")
    assert refused(max_tokens=1, min_tokens=5) == (400, "min_tokens")


@pytest.mark.parametrize("raw", [b"[]", b"null", b"3", b'"x"', b'{"messages": [1]}', b'{"messages": "x"}', b"\xff"])
def test_a_body_of_the_wrong_kind_is_a_400(raw: bytes) -> None:
    with pytest.raises(WireError) as raised:
        read(ChatBody, "application/json", raw)
    assert raised.value.status == 400


def test_several_errors_are_counted() -> None:
    with pytest.raises(WireError) as raised:
        read(ChatBody, "application/json", b'{"temperature": "a", "priority": "b"}')
    assert isinstance(raised.value.body, dict)
    assert raised.value.body["error"]["message"].startswith("3 validation errors:\n  {'type'")


def test_a_bound_beyond_the_context_is_lowered() -> None:
    body = CompletionBody(prompt="x", max_tokens=2048)
    assert manner(body, 100, SETTINGS).max_tokens == 1948
    assert manner(ChatBody(messages=[]), 100, SETTINGS).max_tokens == 1948


def test_a_prompt_leaves_room_for_one_token() -> None:
    check_prompt(2047, 2048)
    for tokens in (2048, 2049):
        with pytest.raises(WireError, match="400"):
            check_prompt(tokens, 2048)


def test_prompts_come_in_four_forms() -> None:
    assert CompletionBody(prompt="a").prompts == ["a"]
    assert CompletionBody(prompt=["a", "b"]).prompts == ["a", "b"]
    assert CompletionBody(prompt=[1, 2]).prompts == [[1, 2]]
    assert CompletionBody(prompt=[[1], [2, 3]]).prompts == [[1], [2, 3]]
