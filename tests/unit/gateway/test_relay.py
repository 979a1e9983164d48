"""Bytes leave as they came; the head leaves with the first of them; a name may change on the way."""

import pytest

from backends.exchange import UpstreamFailed
from gateway.relay import Renaming
from tests.unit.gateway.streams import Stream, sent

NAMES = Renaming.between("llama", "gpt-4o-mini")
ROLE = b'data: {"model":"llama","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n'
HELLO = b'data: {"model":"llama","choices":[{"index":0,"delta":{"content":"Hello"}}]}\n\n'
STOP = b'data: {"model":"llama","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
USAGE = b'data: {"model":"llama","choices":[],"usage":{"prompt_tokens":7,"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"
BROKEN = UpstreamFailed("broken", before_reply=False)


async def test_a_stream_passes_as_it_came() -> None:
    stream = Stream()
    assert await stream.run([ROLE, HELLO, STOP, DONE]) == "complete"
    assert sent(stream.client) == ROLE + HELLO + STOP + DONE


async def test_the_head_leaves_with_the_first_bytes_and_not_before() -> None:
    stream = Stream()
    stream.exchange.pipe(stream.relay.received)
    assert not stream.responder.started
    stream.exchange.received(ROLE)
    assert stream.responder.started
    assert stream.client.bytes.startswith(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n")


async def test_half_a_frame_is_no_first_byte() -> None:
    stream = Stream()
    with pytest.raises(UpstreamFailed):
        await stream.run([ROLE[:20]], BROKEN)
    assert stream.client.sent == []


async def test_an_engine_that_fails_before_its_first_byte_can_be_replaced() -> None:
    stream = Stream()
    with pytest.raises(UpstreamFailed):
        await stream.run([], BROKEN)
    assert stream.client.sent == []


async def test_an_answer_that_ends_before_its_first_byte_has_failed() -> None:
    stream = Stream()
    with pytest.raises(UpstreamFailed) as failed:
        await stream.run([])
    assert failed.value.reason == "broken"
    assert stream.client.sent == []


async def test_an_engine_that_fails_later_leaves_a_truncated_stream() -> None:
    stream = Stream()
    assert await stream.run([ROLE, HELLO, STOP[:30]], BROKEN) == "truncated"
    assert sent(stream.client) == ROLE + HELLO


async def test_usage_is_kept_from_a_client_that_did_not_ask() -> None:
    stream = Stream(strip_usage=True)
    assert await stream.run([ROLE, HELLO, STOP, USAGE, DONE]) == "complete"
    assert sent(stream.client) == ROLE + HELLO + STOP + DONE


@pytest.mark.parametrize("space", [b"", b" "])
async def test_the_models_name_is_the_one_the_client_used(space: bytes) -> None:
    stream = Stream(renaming=NAMES)
    await stream.run([piece.replace(b'":', b'":' + space) for piece in (ROLE + HELLO, STOP, DONE)])
    assert b'"llama"' not in sent(stream.client)
    assert sent(stream.client).count(b'"gpt-4o-mini"') == 3


async def test_a_last_frame_without_its_blank_line_is_renamed_too() -> None:
    stream = Stream(renaming=NAMES)
    assert await stream.run([ROLE, HELLO, STOP.rstrip()]) == "complete"
    assert sent(stream.client) == (ROLE + HELLO + STOP.rstrip()).replace(b"llama", b"gpt-4o-mini")


async def test_what_a_model_writes_is_not_renamed() -> None:
    stream = Stream(renaming=NAMES)
    text = HELLO.replace(b"Hello", rb"{\"model\":\"llama\"}")
    await stream.run([text, STOP, DONE])
    assert rb"{\"model\":\"llama\"}" in sent(stream.client)


async def test_the_clock_starts_with_the_first_content_and_gaps_follow() -> None:
    stream = Stream()
    stream.exchange.pipe(stream.relay.received)
    for piece, seconds in ((ROLE, 1.0), (HELLO, 1.5), (HELLO, 0.25), (HELLO, 4.0)):
        stream.now += seconds
        stream.exchange.received(piece)
    assert stream.relay.first_at == 12.5
    assert stream.firsts == [12.5]
    assert (stream.gaps.buckets, stream.gaps.total) == ([1, 0, 0, 1], 4.25)


@pytest.mark.parametrize("size", [1, 7, 20])
async def test_a_name_that_is_cut_in_a_frame_too_long_to_be_held_is_renamed(size: int) -> None:
    long = b'data: {"pad":"' + b"x" * 70_000 + b'","model": "llama","m":"model":"llama"}\n\n'
    whole = HELLO + long + STOP + DONE
    start = len(HELLO) + 69_990
    stream = Stream(renaming=NAMES)
    pieces = [whole[:start], *(whole[at : at + size] for at in range(start, len(whole), size))]
    assert await stream.run(pieces) == "complete"
    assert sent(stream.client) == whole.replace(b"llama", b"gpt-4o-mini")
