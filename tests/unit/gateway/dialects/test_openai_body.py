"""What all request bodies share: tolerant in numbers, exact in names, and every refusal says which field."""

import json

import pytest

from gateway.call import Call
from gateway.dialects.base import FORBIDDEN, OWNED
from gateway.dialects.openai_chat import OpenAIChat
from gateway.errors import InvalidRequest

SECRET_TEXT = "a sentence that only the client knows"


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": SECRET_TEXT}]} | fields).encode()


def parse(**fields: object) -> Call:
    return OpenAIChat().parse(body(**fields))


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"max_tokens": 7}, 7),
        ({"max_tokens": "7"}, 7),
        ({"max_tokens": 7.0}, 7),
        ({"max_tokens": 7, "max_completion_tokens": 5}, 5),
        ({"max_tokens": 7, "max_completion_tokens": None}, 7),
    ],
)
def test_the_limit_on_generated_tokens(fields: dict[str, object], expected: int | None) -> None:
    assert parse(**fields).max_tokens == expected


@pytest.mark.parametrize(("value", "expected"), [(None, 1), (1, 1), ("3", 3), (128, 128)])
def test_choices(value: object, expected: int) -> None:
    assert parse(n=value).choices == expected


@pytest.mark.parametrize(("value", "expected"), [(None, False), (True, True), ("true", True), (False, False)])
def test_stream(value: object, expected: bool) -> None:
    assert parse(stream=value).stream is expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [(None, False), ({}, False), ({"include_usage": None}, False), ({"include_usage": True, "x": 1}, True)],
)
def test_whether_usage_was_asked_for(options: object, expected: bool) -> None:
    assert parse(stream=True, stream_options=options).wants_usage is expected


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"model": 1}, "model"),
        ({"model": None}, "model"),
        ({"messages": SECRET_TEXT}, "messages"),
        ({"messages": []}, "messages"),
        ({"n": 0}, "n"),
        ({"n": 129}, "n"),
        ({"n": "many"}, "n"),
        ({"stream": 3}, "stream"),
        ({"stream_options": 3}, "stream_options"),
        ({"max_tokens": SECRET_TEXT}, "max_tokens"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"max_completion_tokens": -1}, "max_completion_tokens"),
        ({"max_completion_tokens": 5, "max_tokens": [1]}, "max_tokens"),
    ],
)
def test_a_wrong_field_is_named_and_its_value_is_not_shown(fields: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        parse(**fields)
    assert refused.value.param == param
    assert SECRET_TEXT not in refused.value.message


def test_a_byte_order_mark_before_the_body_goes_no_further() -> None:
    """Windows PowerShell and .NET write one; vLLM reads past it (RFC 8259, 8.1, lets a reader do so)."""
    plain = b'{"model":"m","messages":[{"role":"user","content":"Hi"}]}'
    call = OpenAIChat().parse(b"\xef\xbb\xbf" + plain)
    assert (call.body, call.mended, call.model) == (plain, 0, "m")
    with pytest.raises(InvalidRequest):
        OpenAIChat().parse(b"\xef\xbb\xbf" * 2 + plain)


@pytest.mark.parametrize(("sent", "missing"), [(b'{"messages": []}', "model"), (b'{"model": "m"}', "messages")])
def test_a_missing_field_is_named(sent: bytes, missing: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        OpenAIChat().parse(sent)
    assert refused.value.param == missing
    assert f"`{missing}`" in refused.value.message


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b'{"model":"m"}',
        b'{"messages":[{}]}',
        b"\xff",
        b'{"model":"\xff","messages":[{}]}',
        b"[" * 100_000,
        b'{"model":"m","messages":[{}],"x":' + b"[" * 100_000,
        b'{"model":"m","messages":[{}]} and more',
    ],
    ids=lambda raw: repr(raw[:30]),
)
def test_what_is_no_request_is_refused(raw: bytes) -> None:
    with pytest.raises(InvalidRequest):
        OpenAIChat().parse(raw)


def test_owned_fields_are_kept_raw() -> None:
    sent = {name: {"a": [1, "é"]} for name in FORBIDDEN} | {"max_tokens": 5}
    raw = {name: json.dumps(value).encode() for name, value in sent.items()}
    assert parse(**sent).present == {"model": b""} | raw


@pytest.mark.parametrize("name", sorted(set(OWNED) - {"messages"}))
def test_an_owned_field_sent_twice_is_refused(name: str) -> None:
    twice = b'{"%b":null,' % name.encode() + body(**({} if name == "model" else {name: None}))[1:]
    with pytest.raises(InvalidRequest) as refused:
        OpenAIChat().parse(twice.replace(b'{"model":null', b'{"model":"m"'))
    assert refused.value.param == name


def test_an_owned_name_inside_a_tool_is_no_second_field() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"model": {}, "priority": {}}}}}
    assert parse(tools=[tool], priority=1).present["priority"] == b"1"


def test_session_hints_are_texts_or_nothing() -> None:
    hints = parse(session_id="s", conversation={"id": "c"}, previous_response_id=7, metadata={"user_id": "u"}).hints
    assert (hints.session_id, hints.conversation, hints.previous_response_id) == ("s", None, None)
    assert (hints.metadata_user_id, hints.metadata_session_id) == ("u", None)
    assert parse(metadata="x").hints.metadata_user_id is None


LONG = [{"role": "user", "content": f'"model" "max_tokens" {number} ' + "word " * 900} for number in range(9)]


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" ,", ":")])
@pytest.mark.parametrize(
    "twice",
    [
        '{"model":"a","messages":MESSAGES,"model":"b"}',
        '{"model":"a","model":"b","messages":MESSAGES}',
        '{"metadata":{"x":MESSAGES},"model":"a","model":"b","messages":MESSAGES}',
        '{"model":"a","metadata":{"x":MESSAGES},"mo\\u0064el":"b","messages":MESSAGES}',
    ],
)
def test_a_field_sent_twice_around_long_messages_is_refused(twice: str, separators: tuple[str, str]) -> None:
    messages = json.dumps(LONG, separators=separators)
    once = '{"model":"a","metadata":{"x":MESSAGES},"messages":MESSAGES,"max_tokens":3}'.replace("MESSAGES", messages)
    assert OpenAIChat().parse(once.encode()).present == {"model": b"", "max_tokens": b"3"}
    with pytest.raises(InvalidRequest, match="`model` occurs more than once"):
        OpenAIChat().parse(twice.replace("MESSAGES", messages).encode())
