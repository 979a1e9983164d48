"""A stream that ends without `[DONE]`: never in silence."""

import json

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import events, gateway, house
from tests.upstream import CHUNKED, answers, chunk, frame, resets_after, streams, upstream

SEEN = frame("one") + frame("two")


async def test_an_emulated_engine_that_cuts(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        answer = await running.chat(stream=True, kvgate_fault="cut=after:3")
        *content, last = events(answer.content)
        assert len(content) == 1 + 3
        assert json.loads(last)["error"]["code"] == "engine_broke_off"
        await running.nothing_left()
        assert await running.metric("kvgate_requests_total", outcome="broken") == 1
        assert await running.metric("kvgate_tokens_total", kind="decode") == 3
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await running.charged_as_counted() > 3


@pytest.mark.parametrize(
    "script",
    [
        streams(SEEN),
        streams(SEEN, frame("half")[:30]),
        resets_after(CHUNKED, chunk(SEEN)),
        resets_after(CHUNKED, chunk(SEEN)[:-20]),
        resets_after(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", SEEN),
    ],
    ids=["a proper end", "half a frame", "no last chunk", "within a chunk", "no length"],
)
async def test_however_it_ends_the_client_gets_an_error_event(valkey: EmbeddedServer, script: object) -> None:
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:  # type: ignore[arg-type]
        answer = await house.chat(stream=True)
        *content, last = events(answer.content)
        assert events(SEEN)[: len(content)] == content and len(content) >= 1
        assert json.loads(last)["error"]["type"] == "server_error"
        assert b"[DONE]" not in answer.content
        await house.nothing_left()
        assert await house.charged() > 0
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 1


async def test_a_cut_within_a_frame_that_had_begun_to_leave_does_not_swallow_the_error_event(
    valkey: EmbeddedServer,
) -> None:
    """A frame too long to be held back: what is left of it ends before the event begins."""
    long = frame("x" * 200_000)
    script = resets_after(CHUNKED, chunk(SEEN), chunk(long[:150_000]))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat(stream=True)
        assert long[:100_000] in answer.content, "it was not held back to its end"
        frames = answer.content.split(b"\n\n")
        assert json.loads(frames[-2].removeprefix(b"data: "))["error"]["code"] == "engine_broke_off"
        assert frames[-1] == b""


async def test_a_finish_reason_without_done_is_an_end(valkey: EmbeddedServer) -> None:
    frames = (frame("one"), frame("two", finish="stop"))
    async with upstream(streams(*frames)) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat(stream=True)
        assert answer.content == b"".join(frames)
        await house.nothing_left()
        assert await house.charged_as_counted() > 1
        assert await house.metric("kvgate_requests_total", outcome="ok") == 1


async def test_a_whole_answer_that_is_cut_is_a_502(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        answer = await running.chat(kvgate_fault="cut=after:3")
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_broke_off")
        await running.nothing_left()
        assert await running.charged() == 0
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 2, "nothing of it was used"
        assert await running.metric("kvgate_requests_total", outcome="engine_failed") == 1


async def test_an_empty_answer_is_no_answer(valkey: EmbeddedServer) -> None:
    async with upstream(answers(CHUNKED, chunk(b""))) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat(stream=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_broke_off")
        await house.nothing_left()
        assert await house.charged() == 0
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 1
