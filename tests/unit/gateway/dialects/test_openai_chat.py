"""Chat requests: what may be counted is bounded from above in bytes, and edits touch their messages alone."""

import json

import pytest

from gateway import digests
from gateway.call import Call
from gateway.counting import MEDIA_TOKENS, MESSAGE_OVERHEAD_TOKENS
from gateway.dialects.openai_chat import MEDIA_BYTES, OpenAIChat, countable_bytes
from gateway.retrieval import announced
from gateway.tokens import counter
from policies.edit import DropMessages, ReplaceText
from policies.trim_tool_output import TEMPLATE_TOKENS

CHAT = OpenAIChat()
COUNT = counter()
TOOL = {"type": "function", "function": {"name": "look", "parameters": {}}}
BASE64 = "iVBORw0KGgo" * 2_000


def parse(*messages: object, **fields: object) -> Call:
    return CHAT.parse(json.dumps({"model": "m", "messages": messages} | fields).encode())


def image(url: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": url}}


PICTURE = image(f"data:image/png;base64,{BASE64}")
SOUND = {"type": "input_audio", "input_audio": {"data": BASE64, "format": "wav"}}
TEXT = {"type": "text", "text": "What is this?"}


def said(*parts: object) -> dict[str, object]:
    return {"role": "user", "content": list(parts)}


MESSAGES = {
    "text": {"role": "user", "content": "Hello there"},
    "dense text": {"role": "user", "content": "\u0e01\u0e33\u0e25\u0e31\u0e07" * 500},
    "parts": said(TEXT, TEXT),
    "picture": said(TEXT, PICTURE),
    "two pictures": said(PICTURE, PICTURE),
    "sound": said(SOUND),
    "picture by address": said(TEXT, image("https://x/y.png")),
    "many pictures by address": said(*[image("https://x/y.png")] * 20),
    "picture in short form": said({"image_url": "https://x/y.png"}),
    "video": said({"type": "video_url", "video_url": {"url": "https://x/y.mp4"}}),
    "file": said({"type": "file", "file": {"file_id": "f-1"}}),
    "anthropic": said({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": BASE64}}),
    "base64 as text": {"role": "tool", "tool_call_id": "a", "name": "base64", "content": BASE64},
    "data uri as text": {"role": "tool", "tool_call_id": "a", "content": f"data:image/png;base64,{BASE64}"},
    "base64 as a text part": {"role": "tool", "content": [{"type": "text", "text": BASE64, "data": "x"}]},
}


@pytest.mark.parametrize("message", MESSAGES.values(), ids=MESSAGES)
def test_bytes_bound_tokens_from_above(message: dict[str, object]) -> None:
    call = parse(message)
    (neutral,) = CHAT.messages(call, digests.of_messages(call.messages))
    tokens = COUNT(CHAT.countable(neutral)) + neutral.media * MEDIA_TOKENS + MESSAGE_OVERHEAD_TOKENS
    assert tokens <= call.content_bytes + TEMPLATE_TOKENS
    if message["role"] == "tool":
        assert tokens <= call.largest_output_bytes + TEMPLATE_TOKENS


@pytest.mark.parametrize("message", [said(TEXT, PICTURE), said(SOUND), MESSAGES["anthropic"]])
def test_a_picture_does_not_look_like_its_base64_text(message: dict[str, object]) -> None:
    raw = json.dumps(message).encode()
    assert len(raw) > 20_000
    assert countable_bytes(raw) < MEDIA_BYTES + 300


def test_sizes_are_those_of_all_messages_and_the_tools() -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    call = parse({"role": "user", "content": "a"}, {"role": "user", "content": "bbb"}, tools=tools)
    assert call.overhead == json.dumps(tools).encode()
    assert call.content_bytes == sum(map(len, call.messages)) + len(call.overhead)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("documents", [{"title": "a book", "text": "word " * 500}]),
        ("chat_template_kwargs", {"model_identity": "word " * 500}),
        ("functions", [{"name": "f", "description": "word " * 500}]),
    ],
)
def test_whatever_else_a_template_may_put_into_the_prompt_counts(name: str, value: object) -> None:
    """Else it would be a way around every limit of a prompt."""
    bare, call = parse({"role": "user", "content": "Hi"}), parse({"role": "user", "content": "Hi"}, **{name: value})
    assert call.content_bytes == call.prompt_bytes >= bare.content_bytes + 2_500
    assert COUNT(call.overhead.decode()) > 500
    announced_call = announced(parse({"role": "user", "content": "Hi"}, tools=[TOOL], **{name: value}))
    assert json.loads(announced_call.body)[name] == value
    assert len(json.loads(announced_call.body)["tools"]) == 2
    assert announced_call.content_bytes > call.content_bytes


def test_the_largest_output_is_that_of_a_tool() -> None:
    long, output = {"role": "user", "content": "x" * 999}, {"role": "tool", "tool_call_id": "a", "content": "y" * 99}
    assert parse(long).largest_output_bytes == 0
    call = parse(long, output, {"role": "tool", "content": "z"})
    assert call.largest_output_bytes == len(call.messages[1])


def test_a_result_in_the_old_form_is_an_output_and_the_type_of_a_call_is_none() -> None:
    made = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "x" * 999}}
    call = parse({"role": "assistant", "content": None, "tool_calls": [made]}, {"role": "user", "content": "Hi"})
    assert call.largest_output_bytes == 0
    call = parse(
        {"role": "assistant", "content": "x" * 999, "tool_calls": [made]},
        {"role": "function", "name": "look", "content": "y" * 99},
    )
    assert call.largest_output_bytes == len(call.messages[1])


def test_a_role_spelled_in_escapes_is_no_way_around() -> None:
    body = b'{"model":"demo","messages":[{"role":"\\u0074ool","content":"' + b"x" * 99 + b'"}]}'
    call = CHAT.parse(body)
    assert call.largest_output_bytes == len(call.messages[0])


def test_what_a_model_reads_of_a_message() -> None:
    made = {"id": "c", "type": "function", "function": {"name": "look", "arguments": '{"at":1}'}}
    call = parse({"role": "assistant", "content": "Let me see.", "tool_calls": [made]})
    (message,) = CHAT.messages(call, digests.of_messages(call.messages))
    assert CHAT.countable(message) == 'assistant\nLet me see.\nlook{"at":1}'


def test_without_edits_the_body_is_the_one_received() -> None:
    call = parse({"role": "user", "content": "a"})
    assert CHAT.render(call, []) is call.body


def test_edits_touch_their_messages_alone() -> None:
    messages = [{"role": "user", "content": str(number), "x": 1.50} for number in range(5)]
    call = parse(*messages, temperature=0.10)
    drop = DropMessages("keep_recent_turns", 1, 3, b"", 9)
    shorten = ReplaceText("trim_tool_output", 4, b"", "short", 9)
    rendered = CHAT.render(call, [drop, shorten])
    assert json.loads(rendered)["messages"] == [messages[0], messages[3], messages[4] | {"content": "short"}]
    assert call.messages[0] + b"," + call.messages[3] in rendered
    assert b'"temperature": 0.1' in rendered
