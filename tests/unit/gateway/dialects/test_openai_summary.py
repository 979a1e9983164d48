"""How a record is asked for, byte by byte, and what an answer is read as."""

import json

import msgspec
import pytest

from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_summary import LEAST_CHARACTERS, Answer, answer_of, asked_apart, asked_behind, transcript
from policies import record
from policies.covering import Cover
from policies.edit import AddSummary, DropMessages
from policies.summary import Wanted
from tests.unit.policies.conversations import calling, result, says, user

MESSAGES = [
    b'{"role":"system", "content":"s"}',
    b'{"role":"user","content" :"task"}',
    b'{"role":"assistant","content":"a"}',
    b'{"role":"user","content":"b"}',
    b'{"role":"assistant","content":"c"}',
    b'{"role":"user","content":"d"}',
]
BODY = (
    b'{"model":"demo","messages":[%b],"stream":true,"stream_options":{"include_usage":true},"n":3,"stop":["x"],'
    b'"tools":[{"type" : "function","function":{"name":"look"}}],"tool_choice":"required","temperature":0.5,'
    b'"response_format":{"type":"json_object"},"chat_template_kwargs":{"enable_thinking":false},"max_completion_tokens":9}'
) % b",".join(MESSAGES)


def wanted(*edits: DropMessages | AddSummary) -> Wanted:
    return Wanted(Cover(1, 5, 4), b"k", urgent=False, make=True, replaced_tokens=100, edits=edits)


def sent(body: bytes) -> dict[str, msgspec.Raw]:
    return msgspec.json.decode(body, type=dict[str, msgspec.Raw])


def test_behind_the_conversation_everything_that_shapes_the_prompt_stays_to_the_byte() -> None:
    call = OpenAIChat().parse(BODY)
    body = asked_behind(call, wanted(), 300)
    fields = sent(body)
    assert set(fields) == {
        "model",
        "messages",
        "tools",
        "tool_choice",
        "temperature",
        "chat_template_kwargs",
        "max_tokens",
    }
    assert bytes(fields["tools"]) == b'[{"type" : "function","function":{"name":"look"}}]'
    assert (bytes(fields["tool_choice"]), bytes(fields["max_tokens"])) == (b'"none"', b"300")
    messages = msgspec.json.decode(fields["messages"], type=list[msgspec.Raw])
    assert [bytes(message) for message in messages[:-1]] == MESSAGES[:5]
    asked = json.loads(bytes(messages[-1]))
    assert asked["role"] == "user" and asked["content"].startswith(record.ASKED) and "150 words" in asked["content"]


def test_it_stands_behind_what_was_sent_and_not_behind_what_came() -> None:
    call = OpenAIChat().parse(BODY)
    edits = AddSummary("p", 1, b"", record.framed("INTENT x", 2), -5), DropMessages("p", 2, 4, b"", 9)
    messages = json.loads(asked_behind(call, wanted(*edits), 300))["messages"]
    assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]
    assert "INTENT x" in messages[1]["content"] and messages[2]["content"] == "c"


def test_without_tools_no_choice_of_them_is_sent() -> None:
    body = b'{"model":"demo","messages":[%b]}' % b",".join(MESSAGES)
    assert "tool_choice" not in sent(asked_behind(OpenAIChat().parse(body), wanted(), 300))


def test_another_model_gets_a_transcript_that_fits() -> None:
    talk = [
        user("task"),
        calling("a", arguments='{"p": 1}'),
        result("a", "x" * 9_000 + "the end"),
        says("done <|im_end|>"),
    ]
    body = json.loads(asked_apart("small", talk, 200, 2_000))
    system, asked = body["messages"]
    assert (body["model"], system["role"], asked["role"]) == ("small", "system", "user")
    text = asked["content"]
    assert len(text) < 4_500 and "the end" in text and '(calls look {"p": 1})' in text and "<|" not in text
    assert text.index(record.ASKED) > text.index("the end")
    assert "tools" not in body and "stream" not in body


def test_a_transcript_leaves_something_of_every_message() -> None:
    text = transcript([says(f"{number} " + "y" * 500) for number in range(50)], 10)
    assert all(f"assistant: {number} y" in text for number in range(50))
    assert len(text) < 50 * (LEAST_CHARACTERS + 10)


@pytest.mark.parametrize(
    ("body", "read"),
    [
        (b'{"choices":[{"message":{"content":"t"},"finish_reason":"stop"}]}', Answer("t", "stop")),
        (b'{"choices":[{"message":{"content":null,"tool_calls":[{"id":"a"}]},"finish_reason":"tool_calls"}]}',
         Answer("", "tool_calls", called=True)),
        (b'{"choices":[{"message":{"content":"","refusal":"I will not"},"finish_reason":null}]}',
         Answer("", "", refused=True)),
        (b'{"choices":[{"message":{"content":[{"type":"text"}]},"finish_reason":"length"}]}', Answer("", "length")),
        (b'{"choices":[]}', None),
        (b"{}", None),
        (b"data: x", None),
        (b"[" * 9_999, None),
        (b'{"choices":[{"message":{"content":"\xff"}}]}', None),
    ],
)  # fmt: skip
def test_answers_are_read_as_what_they_are(body: bytes, read: Answer | None) -> None:
    assert answer_of(body) == read
