"""A gateway that is told to stop: what runs ends well, what would run too long is told, nothing is left unsettled."""

import asyncio
import json
from contextlib import AsyncExitStack

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import events, gateway, until
from tests.upstream import CHUNKED, DONE, END, Peer, chunk, frame, stalls_after, streams, upstream

FIRST = (CHUNKED, chunk(frame("one")))
REST = (chunk(frame("two", finish="stop")), chunk(frame(usage={"prompt_tokens": 3, "completion_tokens": 2})))


async def test_a_stream_in_flight_ends_and_is_settled(valkey: EmbeddedServer) -> None:
    go_on = asyncio.Event()

    async def waits(peer: Peer) -> None:
        await peer.send(*FIRST)
        await go_on.wait()
        await peer.send(*REST, chunk(DONE), END)

    async with AsyncExitStack() as ends:
        up = await ends.enter_async_context(upstream(waits))
        serving = AsyncExitStack()
        house = await serving.enter_async_context(gateway({"any": {"one": up.url}}, valkey.url))
        reader, writer = await house.send(stream=True)
        _, idle = await asyncio.open_connection("127.0.0.1", house.gateway.port)
        await reader.readuntil(b"one")
        closing = asyncio.create_task(serving.aclose())
        while not house.gateway.draining:  # noqa: ASYNC110
            await asyncio.sleep(0)
        shown = await house.http.get(f"http://127.0.0.1:{house.gateway.admin_port}/readyz")
        assert (shown.status_code, shown.text) == (503, "draining\n")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", house.gateway.port)
        go_on.set()
        assert b"[DONE]" in await reader.readuntil(b"0\r\n\r\n")
        assert await reader.read() == b"", "the connection is closed after the answer"
        await closing
        writer.close()
        idle.close()
    async with gateway({"any": {"one": up.url}}, valkey.url, flush=False) as after:
        assert await after.charged() == 5
        assert await after.leases() == 0


async def test_ready_says_no_on_both_ports_before_the_port_closes(valkey: EmbeddedServer) -> None:
    async with upstream(streams(frame("hi", finish="stop"), DONE)) as up:
        serving = AsyncExitStack()
        house = await serving.enter_async_context(
            gateway({"any": {"one": up.url}}, valkey.url, drain_delay_seconds=3600)
        )
        closing = asyncio.create_task(serving.aclose())
        await until(lambda: house.gateway.draining)
        for port in (house.gateway.port, house.gateway.admin_port):
            shown = await house.http.get(f"http://127.0.0.1:{port}/readyz")
            assert (shown.status_code, shown.text) == (503, "draining\n")
        assert (await house.chat(stream=True)).status_code == 200, "who has not seen it yet is still served"
        house.gateway.stop_now()
        await closing
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", house.gateway.port)


async def test_a_stream_that_takes_too_long_gets_an_error_event(valkey: EmbeddedServer) -> None:
    async with upstream(stalls_after(*FIRST)) as up:
        async with gateway({"any": {"one": up.url}}, valkey.url, drain_seconds=0.1) as house:
            reader, writer = await house.send(stream=True)
            await reader.readuntil(b"one")
        await up.peers[0].gone.wait()
        rest = await reader.read()
        writer.close()
        assert json.loads(events(rest)[-1])["error"]["code"] == "draining"
        async with gateway({"any": {"one": up.url}}, valkey.url, flush=False) as after:
            assert await after.leases() == 0
            assert await after.charged() > 0
