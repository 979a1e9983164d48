"""An engine that does not begin in time: the client is told, the engine is let go, no other one is asked."""

import asyncio
import json
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import events, gateway, house
from tests.upstream import CHUNKED, DONE, END, Peer, chunk, frame, stalls_after, upstream


def impatient(data: dict[str, Any]) -> None:
    data["routing"] |= {"first_token_timeout": "100ms", "idle_timeout": "100ms"}


@pytest.mark.parametrize("stream", [True, False])
async def test_no_head_in_time_is_a_504(valkey: EmbeddedServer, stream: bool) -> None:
    async with house(valkey.url, change=impatient) as running:
        answer = await running.chat(stream=stream, kvgate_fault="slow=seconds:1000")
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
        await running.nothing_left()
        assert await running.charged() == 0
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await running.metric("kvgate_requests_total", outcome="engine_failed") == 1
        assert await running.metric("kvgate_timeouts_total", pool="any", wait="first_token") == 1


async def test_a_head_and_then_no_first_token_is_a_504_too(valkey: EmbeddedServer) -> None:
    async with upstream(stalls_after(CHUNKED)) as up, gateway({"any": {"one": up.url}}, valkey.url, impatient) as house:
        answer = await house.chat(stream=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.charged() == 0


ROLE = b'data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}\n\n'


async def test_what_only_keeps_a_stream_alive_is_no_first_token(valkey: EmbeddedServer) -> None:
    async def alive(peer: Peer) -> None:
        await peer.send(CHUNKED)
        while not peer.gone.is_set():
            peer.writer.write(chunk(b": keep-alive\n\n"))
            await asyncio.sleep(0.02)

    async with upstream(alive) as up, gateway({"any": {"one": up.url}}, valkey.url, impatient) as house:
        answer = await house.chat(stream=True)
        assert answer.content.startswith(b": keep-alive\n\n")
        assert json.loads(events(answer.content)[-1])["error"]["code"] == "engine_timeout"
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.metric("kvgate_timeouts_total", wait="first_token") == 1
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await house.metric("kvgate_requests_total", outcome="broken") == 1
        assert await house.metric("kvgate_tokens_total", kind="decode") == 0


def quick_between_tokens(data: dict[str, Any]) -> None:
    data["routing"] |= {"first_token_timeout": "1h", "idle_timeout": "100ms"}


@pytest.mark.parametrize("early", [b": keep-alive\n\n", ROLE], ids=["a comment", "the role"])
async def test_the_first_token_has_its_own_time_whatever_came_before_it(valkey: EmbeddedServer, early: bytes) -> None:
    """Some engines say something at once and then compute the prompt: as long as that takes, not as a gap may last."""
    go_on = asyncio.Event()

    async def computes(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(early))
        await go_on.wait()
        await peer.send(chunk(frame("one", finish="stop")), chunk(DONE), END)

    async with (
        upstream(computes) as up,
        gateway({"any": {"one": up.url}}, valkey.url, quick_between_tokens) as house,
    ):
        call = asyncio.create_task(house.chat(stream=True))
        await up.arrived.wait()
        for _ in range(3):  # far more sweeps than the idle limit is long
            await asyncio.sleep(0.6)
        go_on.set()
        answer = await call
        assert events(answer.content)[-1] == "[DONE]"
        await house.nothing_left()
        assert await house.metric("kvgate_timeouts_total") == 0
        assert await house.metric("kvgate_requests_total", outcome="ok") == 1
