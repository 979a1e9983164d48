"""A client that leaves in the middle of its stream: the engine stops at once, what it generated is charged."""

import asyncio

from gateway.embedded import EmbeddedServer
from loadtest.engine import Settings
from tests.house import gateway, house, until
from tests.upstream import CHUNKED, chunk, frame, stalls_after, upstream

UNHURRIED = Settings(served_model_name="demo", speed=1)
"""Generates in real time, so that thousands of tokens are never done before the client leaves."""


async def test_the_engine_s_connection_is_closed_at_once(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, *(chunk(frame(word)) for word in ("", "one", "two", "three")))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        reader, writer = await house.send(stream=True)
        await reader.readuntil(b"three")
        writer.close()
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.metric("kvgate_tokens_total", kind="decode") == 3
        assert await house.metric("kvgate_requests_total", outcome="client_gone") == 1
        assert await house.metric("kvgate_attempts_total", outcome="neutral") == 1
        prompt = await house.metric("kvgate_tokens_total", kind="prefill")
        assert await house.charged() == prompt + 3


async def test_an_emulated_engine_stops_generating(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, {"any": ["one"]}, engine=UNHURRIED) as running:
        emulator = running.engines["one"].emulator
        reader, writer = await running.send(stream=True, max_tokens=4_000)
        await reader.readuntil(b'"content"')
        assert not emulator.driver.scheduler.idle
        loop = asyncio.get_running_loop()
        left_at = loop.time()
        writer.close()
        await until(lambda: emulator.driver.scheduler.idle)
        assert loop.time() - left_at < 10, "at once, not at the end of four thousand tokens"
        assert emulator.driver.scheduler.pool.used == 0
        await running.nothing_left()
        assert await running.metric("kvgate_requests_total", outcome="client_gone") == 1


async def test_a_client_that_resets_is_the_same(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, chunk(frame("one")))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        reader, writer = await house.send(stream=True)
        await reader.readuntil(b"one")
        writer.transport.abort()
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert not up.connections
