"""A reply becomes one message, the same bytes streamed or whole, wherever the network cuts the stream."""

import json
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.openai_reply import FOLD_BYTES, ChatReply

Json = dict[str, Any]
DONE = b"data: [DONE]\n\n"
CALLS = [
    {"id": "call_a", "type": "function", "function": {"name": "look", "arguments": '{"at": "me"}'}},
    {"id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}},
]


def framed(delta: Json, finish: str | None = None, end: bytes = b"\n\n") -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return b"data: " + json.dumps({"id": "c", "choices": [choice]}).encode() + end


def read(pieces: Iterable[bytes]) -> bytes | None:
    reply = ChatReply()
    for piece in pieces:
        reply.feed(piece)
    return reply.message()


def whole(message: Json) -> bytes | None:
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1}}
    return read([json.dumps(body).encode()])


def streamed(*deltas: Json, end: bytes = b"\n\n") -> bytes:
    return b"".join([framed(delta, end=end) for delta in deltas]) + framed({}, "stop", end) + DONE


def decoded(message: bytes | None) -> Json:
    assert message is not None
    found = msgspec.json.decode(message)
    assert isinstance(found, dict)
    return found


def test_what_says_nothing_is_left_out() -> None:
    nothing: Json = {"refusal": None, "annotations": None, "audio": None, "function_call": None, "tool_calls": []}
    assert decoded(whole({"role": "assistant", "content": "Hi.", **nothing})) == {"role": "assistant", "content": "Hi."}
    assert decoded(whole({"role": "assistant", "content": ""})) == {"role": "assistant", "content": ""}


def test_calls_reasoning_and_refusals_are_kept() -> None:
    message = {"role": "assistant", "content": None, "reasoning": "Hm.", "tool_calls": CALLS}
    assert decoded(whole(message)) == message
    for name in ("reasoning_content", "refusal"):
        assert decoded(whole({"content": "No.", name: "Because."}))[name] == "Because."
    old = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    assert decoded(whole(old)) == old


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
def test_calls_that_come_in_pieces_are_put_together(end: bytes) -> None:
    first = {"index": 0, "id": "call_a", "type": "function", "function": {"name": "look", "arguments": ""}}
    second = {"index": 1, "id": "call_b", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    pieces = [{"index": 0, "function": {"arguments": part}} for part in ('{"at"', ': "me"}')]
    stream = streamed(
        {"role": "assistant", "content": ""},
        {"reasoning": "Hm."},
        {"tool_calls": [first]},
        {"tool_calls": [pieces[0]]},
        {"tool_calls": [second]},
        {"tool_calls": [pieces[1]]},
        end=end,
    )
    assert read([stream]) == whole({"content": None, "reasoning": "Hm.", "tool_calls": CALLS})


def test_calls_without_an_index_are_told_by_their_ids() -> None:
    pieces = [{"function": {"arguments": "{}"}}]
    started = {"id": "call_b", "type": "function", "function": {"name": "now"}}
    stream = streamed({"tool_calls": CALLS[:1]}, {"tool_calls": [started]}, {"tool_calls": pieces})
    assert read([stream]) == whole({"content": None, "tool_calls": CALLS})


def test_an_emoji_cut_in_two_is_one_again() -> None:
    halves = [b'data: {"choices":[{"delta":{"content":"\\ud%b"}}]}\n\n' % half for half in (b"83d", b"e00")]
    assert decoded(read([*halves, DONE]))["content"] == "😀"
    lone = b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n'
    assert decoded(read([lone, DONE]))["content"] == "a\ufffd"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b'{"choices":[]}',
        b'{"error":{"message":"no"}}',
        framed({"content": "one"}),
        b": ping\n\n",
        b'data: {"error":{"message":"no"}}\n\n',
    ],
)
def test_no_message_of_what_is_none_or_has_no_end(body: bytes) -> None:
    assert read([body]) is None


@given(
    words=st.lists(st.text(max_size=12), max_size=8),
    thoughts=st.lists(st.text(max_size=6), max_size=3),
    calls=st.integers(0, 2),
    cuts=st.lists(st.integers(0, 3000), max_size=12),
)
def test_cut_anywhere_it_is_the_whole_reply(
    words: Sequence[str], thoughts: Sequence[str], calls: int, cuts: list[int]
) -> None:
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    deltas += [{"reasoning": thought} for thought in thoughts] + [{"content": word} for word in words]
    deltas += [{"tool_calls": [{"index": at, **call}]} for at, call in enumerate(CALLS[:calls])]
    stream = b": ping\n\n" + streamed(*deltas)
    edges = [0, *sorted({min(cut, len(stream)) for cut in cuts}), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    message: Json = {"content": "".join(words) or None, "reasoning": "".join(thoughts), "tool_calls": CALLS[:calls]}
    assert read(pieces) == whole(message)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "delta",
                    "message",
                    "tool_calls",
                    "function",
                    "function_call",
                    "id",
                    "index",
                    "content",
                    "name",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)


@given(values=st.lists(JSON, max_size=4), end=st.sampled_from([DONE, b"", b"data: {", b"\xff"]))
def test_whatever_an_engine_says_is_read_or_left_unread(values: list[object], end: bytes) -> None:
    """Step 9 must not fail for it: the call is still to be charged."""
    frames = [b"data: " + json.dumps(value).encode() + b"\n\n" for value in values]
    bodies = [json.dumps(value).encode() for value in values]
    for message in (read([*frames, end]), *(read([body, end]) for body in bodies)):
        assert message is None or decoded(message)["role"] == "assistant"


def test_a_long_stream_takes_no_more_room_than_what_it_says() -> None:
    reply = ChatReply()
    frame = framed({"content": "word "})
    for _ in range(4 * FOLD_BYTES // len(frame)):
        reply.feed(frame)
    assert len(reply._unread) <= FOLD_BYTES + len(frame)
    reply.feed(DONE)
    assert decoded(reply.message())["content"] == "word " * (4 * FOLD_BYTES // len(frame))
