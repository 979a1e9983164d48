"""What is read out of an engine's answer, and what of its errors a client is told."""

import json

import pytest

from backends.frames import Usage
from gateway.answers import renaming_of, said, told, usage_of
from gateway.counting import Counter
from gateway.job import Job
from gateway.relay import Renaming
from gateway.service import Service
from tests.unit.gateway.samples import call, caller, model


def job(name: str = "demo", engine_name: str | None = None) -> Job:
    body = json.dumps({"model": name, "messages": [{"role": "user", "content": "Hi"}]}).encode()
    service = Service(
        caller(), model(*([("models/demo/engine_name", engine_name)] if engine_name else [])), (), Counter(len)
    )
    return Job(call(body), service, body, (), "decode", (), "r-1", b"")


@pytest.mark.parametrize(
    ("usage", "expected"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 3}, Usage(7, None, 3)),
        ({"prompt_tokens": 7, "completion_tokens": 0}, Usage(7, None, 0)),
        ({"prompt_tokens": 7}, Usage(7, None, 0)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": 0}}, Usage(7, 0, 0)),
        ({"prompt_tokens": 7, "prompt_tokens_details": {"cached_tokens": None}}, Usage(7, None, 0)),
        ({"prompt_tokens": 7, "prompt_tokens_details": None}, Usage(7, None, 0)),
        (
            {"prompt_tokens": 7, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 6}},
            Usage(7, None, 9, 6),
        ),
        ({"prompt_tokens": 7, "completion_tokens_details": {}}, Usage(7, None, 0)),
        (
            {"prompt_tokens": 7, "completion_tokens": 3, "completion_tokens_details": {"reasoning_tokens": -1}},
            Usage(7, None, 3),
        ),
        ({"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": "none"}, Usage(7, None, 3)),
        ({"completion_tokens": 3, "total_tokens": 10}, None),
        ({"prompt_tokens": True}, None),
        ({"prompt_tokens": -1}, None),
        ({"prompt_tokens": "7"}, None),
        ({}, None),
        (None, None),
        ("x", None),
    ],
)
def test_usage_of_a_whole_answer(usage: object, expected: Usage | None) -> None:
    assert usage_of(json.dumps({"id": "x", "usage": usage}).encode()) == expected


@pytest.mark.parametrize("value", [b"NaN", b"-Infinity", b'"\xff"', b'"\\ud800"'])
def test_what_is_wrong_with_the_rest_of_an_answer_does_not_hide_its_usage(value: bytes) -> None:
    body = b'{"choices":[{"logprobs":' + value + b'}],"usage":{"prompt_tokens":7,"completion_tokens":3}}'
    assert usage_of(body) == Usage(7, None, 3)


@pytest.mark.parametrize(
    ("choices", "text"),
    [
        ([{"message": {"content": "one"}}, {"message": {"content": "two"}}], "onetwo"),
        ([{"text": "one"}, {"text": "two"}], "onetwo"),
        ([{"message": {"content": None, "reasoning": "why", "refusal": "no"}}], "whyno"),
        ([{"message": {"content": [{"type": "text", "text": "part"}]}}], "part"),
        ([{"message": {"tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]}}], "f{}"),
        ([{"message": {"function_call": {"name": "f", "arguments": "{}"}}}], "f{}"),
        ([{"message": {"role": "assistant", "content": ""}, "finish_reason": "stop"}], ""),
        ([{"message": 7}, 7, {"text": 7}, {"message": {"tool_calls": [7, {"function": 7}]}}], ""),
        (None, ""),
        (7, ""),
    ],
)
def test_what_an_answer_says_in_all_of_its_choices(choices: object, text: str) -> None:
    assert said(json.dumps({"choices": choices}).encode()) == text


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b'{"usage":' + b"[" * 50_000])
def test_an_answer_that_cannot_be_read_has_no_usage(body: bytes) -> None:
    assert usage_of(body) is None


def test_a_name_is_changed_back_only_where_it_differs() -> None:
    assert renaming_of(job()) is None
    renaming = renaming_of(job("gpt-4o-mini", "org/demo"))
    assert renaming == Renaming.between("org/demo", "gpt-4o-mini")


def test_an_engines_own_error_object_passes_as_it_came() -> None:
    body = b'{"error":{"message":"temperature must be non-negative","type":"BadRequestError","param":null,"code":400}}'
    assert told(job(), 400, body) is body


@pytest.mark.parametrize(
    "body",
    [
        b'{"object":"error","message":"no","type":"BadRequestError","param":"n","code":400}',
        b'{"detail":[{"loc":["body","n"],"msg":"no","type":"int_parsing"}]}',
        b'{"error":"no","error_type":"validation"}',
        b"no",
        b"",
    ],
)
def test_every_other_shape_becomes_the_dialects(body: bytes) -> None:
    error = json.loads(told(job(), 400, body))["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str) and error["message"]


def test_a_page_of_html_or_a_stack_trace_is_not_told() -> None:
    traced = {
        "error": {
            "message": '1 validation error:\n\n  File "/opt/venv/app.py", line 3, in f\n    POST /v1',
            "type": "x",
        }
    }
    for body in (
        b"<html>nginx at 10.0.0.7</html>",
        json.dumps(traced).encode(),
        json.dumps(traced, separators=(",", ":")).encode(),
    ):
        answer = told(job(), 400, body)
        assert b"/opt/venv" not in answer
        assert b"10.0.0.7" not in answer
        assert json.loads(answer)["error"]["message"]
