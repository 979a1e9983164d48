"""Messages as policies see them, and what becomes of the others' bytes when a text is replaced."""

import json
from collections.abc import Sequence

import pytest

from gateway import digests
from gateway.dialects.openai_messages import neutral, with_text
from policies.conversation import Conversation, Message, ToolCall


def read(*wires: object) -> tuple[Message, ...]:
    raws = [wire if isinstance(wire, bytes) else json.dumps(wire).encode() for wire in wires]
    return neutral(raws, digests.of_messages(raws))


def made(id: str, name: str = "look", arguments: str = "{}") -> dict[str, object]:
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


@pytest.mark.parametrize(
    ("content", "text", "media"),
    [
        ("Hi", "Hi", 0),
        ("", "", 0),
        (None, "", 0),
        ([], "", 0),
        ([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}], "a\nb", 0),
        ([{"type": "input_text", "text": "a"}, {"text": "b"}], "a\nb", 0),
        ([{"type": "text", "text": None}, {"type": "text"}], "\n", 0),
        ([{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "u"}}], "a", 1),
        ([1, None, "x"], "", 3),
        ({"text": "a"}, "", 0),
        (7, "", 0),
    ],
)
def test_content(content: object, text: str, media: int) -> None:
    (message,) = read({"role": "user", "content": content})
    assert (message.text, message.media) == (text, media)


def test_absent_content_is_empty() -> None:
    assert read({"role": "assistant", "tool_calls": [made("a")]})[0].text == ""


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_known_roles(role: str) -> None:
    assert read({"role": role, "content": "x"})[0].role == role


@pytest.mark.parametrize("role", ["observation", "ipython", "", None, 7, [], {}, ["user"]])
def test_an_unknown_role_is_read_as_the_users(role: object) -> None:
    assert read({"role": role, "content": "x"})[0].role == "user"


@pytest.mark.parametrize("raw", [b"[]", b"1", b"null", b'"x"', b'{"role":"user","content":' + b"[" * 50_000])
def test_what_cannot_be_read_is_an_opaque_user_message(raw: bytes) -> None:
    (message,) = read(raw)
    assert (message.role, message.text, message.calls) == ("user", "", ())


def test_parallel_calls_and_their_answers() -> None:
    assistant, second, first = read(
        {"role": "assistant", "content": None, "tool_calls": [made("a", "read", '{"p":1}'), made("b ", "list")]},
        {"role": "tool", "tool_call_id": "b", "content": "x"},
        {"role": "tool", "tool_call_id": " a", "content": "y"},
    )
    assert assistant.calls == (ToolCall("a", "read", '{"p":1}'), ToolCall("b ", "list", "{}"))
    assert (second.answers, second.name) == ("b", "list")
    assert (first.answers, first.name) == (" a", "read")


def test_an_answer_to_nobody_keeps_its_own_name() -> None:
    (message,) = read({"role": "tool", "tool_call_id": "z", "name": "grep", "content": ""})
    assert (message.answers, message.name) == ("z", "grep")


def test_a_call_and_its_result_as_they_were_written_before_there_were_ids_are_a_group() -> None:
    asked, called, result, more, other = read(
        {"role": "user", "content": "Task"},
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": '{"p":1}'}},
        {"role": "function", "name": "read", "content": "x"},
        {"role": "assistant", "content": None, "function_call": {"name": "list", "arguments": "{}"}},
        {"role": "function", "name": "list", "content": "y"},
    )
    assert called.calls == (ToolCall("", "read", '{"p":1}'),)
    assert (result.role, result.answers, result.name) == ("tool", "", "read")
    assert (other.role, other.name) == ("tool", "list")
    talk = Conversation((asked, called, result, more, other))
    assert talk.groups() == ((1, 2), (3, 4))
    assert talk.turns() == (range(5),)


@pytest.mark.parametrize("legacy", [None, "x", [], {}, {"name": 1, "arguments": {}}])
def test_a_malformed_legacy_call_does_no_harm(legacy: object) -> None:
    (message,) = read({"role": "assistant", "function_call": legacy})
    assert all(isinstance(part, str) for call in message.calls for part in (call.id, call.name, call.arguments))


@pytest.mark.parametrize(
    "calls",
    [None, {}, "x", [None, 1], [{}], [{"function": None}], [{"id": 5, "function": {"name": 1, "arguments": {}}}]],
)
def test_malformed_calls_do_no_harm(calls: object) -> None:
    (message,) = read({"role": "assistant", "tool_calls": calls})
    assert all(isinstance(part, str) for call in message.calls for part in (call.id, call.name, call.arguments))


def test_call_id_counts_where_id_is_missing() -> None:
    assert read({"role": "assistant", "tool_calls": [made("") | {"call_id": "c"}]})[0].calls[0].id == "c"


def test_cache_markers_are_counted_on_the_message_and_on_its_parts() -> None:
    mark = {"cache_control": {"type": "ephemeral"}}
    part = {"type": "text", "text": "a"}
    (message,) = read({"role": "user", "content": [part | mark, part, part | mark]} | mark)
    assert message.cache_control == 3


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"reasoning_content": "hm"}, True),
        ({"reasoning": "hm"}, True),
        ({"thinking_blocks": [{}]}, True),
        ({"reasoning_content": None}, False),
        ({}, False),
    ],
)
def test_reasoning(fields: dict[str, object], expected: bool) -> None:
    assert read({"role": "assistant", "content": "x"} | fields)[0].reasoning is expected


@pytest.mark.parametrize("content", ["long", "", None])
def test_a_text_is_replaced_and_all_else_kept(content: object) -> None:
    wire = {"role": "tool", "tool_call_id": "a", "content": content, "x": {"y": [1, 2.5, None, True]}}
    assert json.loads(with_text(json.dumps(wire).encode(), "short")) == wire | {"content": "short"}


def test_a_list_keeps_what_is_not_text() -> None:
    image: dict[str, object] = {"type": "image_url", "image_url": {"url": "u"}}
    parts: Sequence[object] = [{"type": "text", "text": "a"}, image, {"type": "text", "text": "b"}]
    wire = {"role": "tool", "content": parts}
    replaced = json.loads(with_text(json.dumps(wire).encode(), "short"))
    assert replaced["content"] == [{"type": "text", "text": "short"}, image]


def test_numbers_of_any_size_survive() -> None:
    raw = b'{"role":"tool","content":"x","big":123456789012345678901234567890,"small":1e-300}'
    assert json.loads(with_text(raw, "y")) == json.loads(raw) | {"content": "y"}


@pytest.mark.parametrize("text", ["a\ud800b", "\udc00", "a\udfff"])
def test_lone_surrogates_never_leave(text: str) -> None:
    rendered = with_text(b'{"role":"tool","content":"x","\\ud801":"\\udc01"}', text)
    assert "\ufffd" in rendered.decode()
    assert json.loads(rendered)["content"] == text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def test_pairs_of_surrogates_are_characters() -> None:
    (message,) = read(b'{"role":"user","content":"\\ud83d\\ude00"}')
    assert message.text == "\U0001f600"
    assert json.loads(with_text(b'{"role":"tool","content":""}', "\U0001f600"))["content"] == "\U0001f600"


def test_a_lone_surrogate_is_kept_for_the_engine() -> None:
    assert read(b'{"role":"user","content":"a\\ud800"}')[0].text == "a\ud800"


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "tool", "tool_call_id": "a", "content": "long \u00e9 text", "name": "look"},
        {"content": "x", "role": "tool", "n": 1.50, "on": True, "no": None, "list": ["a", {"b": 2}]},
        {"role": "tool", "content": "x", "name": "a\\nb"},
        {"role": "tool", "content": "x", "name": "\ud83d"},
    ],
)
def test_a_replaced_text_leaves_the_other_fields_and_their_order(fields: dict[str, object]) -> None:
    raw = json.dumps(fields, separators=(",", ":")).encode()
    sent = with_text(raw, 'short "\u6c34"')
    named = {name: "\ufffd" if value == "\ud83d" else value for name, value in fields.items()}
    assert list(json.loads(sent).items()) == list({**named, "content": 'short "\u6c34"'}.items())
    sent.decode()
