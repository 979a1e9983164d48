"""Bytes that are not what they should be: a frame that is no JSON passes, a chunk that is no chunk ends the stream."""

import json

from gateway.embedded import EmbeddedServer
from tests.house import events, gateway, house
from tests.upstream import CHUNKED, answers, chunk, frame, reply, upstream


async def test_a_frame_that_is_no_json_passes_and_the_stream_goes_on(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        answer = await running.chat(stream=True, kvgate_fault="malformed=after:3")
        frames = events(answer.content)
        assert frames[-1] == "[DONE]" and len(frames) == 1 + 8 + 1 + 1
        await running.nothing_left()
        assert await running.metric("kvgate_requests_total", outcome="ok") == 1
        assert await running.metric("kvgate_tokens_total", kind="decode") == 8
        assert await running.metric("kvgate_attempts_total", outcome="success") == 1
        assert await running.charged_as_counted() > 8


async def test_framing_that_is_broken_is_a_broken_stream(valkey: EmbeddedServer) -> None:
    script = answers(CHUNKED, chunk(frame("one")), b"zz\r\nwhat is this\r\n")
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat(stream=True)
        first, last = events(answer.content)
        assert first == events(frame("one"))[0]
        assert json.loads(last)["error"]["code"] == "engine_broke_off"
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await house.metric("kvgate_requests_total", outcome="broken") == 1
        assert await house.charged_as_counted() > 0


async def test_an_answer_that_is_no_http_is_a_502(valkey: EmbeddedServer) -> None:
    async with upstream(answers(b"SSH-2.0-OpenSSH\r\n")) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat()
        assert answer.status_code == 502
        await house.nothing_left()
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await house.charged() == 0


async def test_a_body_that_is_no_json_passes_and_is_charged_by_estimate(valkey: EmbeddedServer) -> None:
    async with upstream(answers(reply(200, b'{"id":'))) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat()
        assert (answer.status_code, answer.content) == (200, b'{"id":')
        await house.nothing_left()
        assert await house.metric("kvgate_requests_estimated_total") == 1
