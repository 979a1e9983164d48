"""A client that reads slowly or not at all: the engine is held back, nothing piles up in the gateway."""

import asyncio
from typing import Any

from gateway.embedded import EmbeddedServer
from tests.house import configured, gateway, until
from tests.upstream import CHUNKED, DONE, END, Peer, Script, chunk, frame, upstream

PIECE = frame("x" * 60_000)
PIECES = 2_000


def floods(sent: list[int], held: asyncio.Event) -> Script:
    """Sends 120 MB as fast as they are taken; `sent` counts the pieces, `held` is set when one is not taken."""

    async def script(peer: Peer) -> None:
        peer.writer.write(CHUNKED)
        for _ in range(PIECES):
            peer.writer.write(chunk(PIECE))
            sent[0] += 1
            try:
                await asyncio.wait_for(peer.writer.drain(), 0.5)
            except TimeoutError:
                held.set()
                await peer.writer.drain()
        await peer.send(chunk(frame("end", finish="stop")), chunk(DONE), END)

    return script


async def test_the_engine_is_held_back_and_nothing_is_lost(valkey: EmbeddedServer) -> None:
    sent, held = [0], asyncio.Event()
    async with upstream(floods(sent, held)) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        reader, writer = await house.send(stream=True)
        await reader.readuntil(b"\r\n\r\n")
        await held.wait()
        taken = sent[0]
        assert taken < PIECES / 2, "what fits into the sockets' buffers and no more"
        read = 0
        while data := await reader.read(2**20):
            read += len(data)
            if data.endswith(b"0\r\n\r\n"):
                break
        assert (sent[0], read > PIECES * len(PIECE)) == (PIECES, True)
        writer.close()
        await house.nothing_left()
        assert await house.metric("kvgate_requests_total", outcome="ok") == 1
        assert await house.metric("kvgate_tokens_total", kind="decode") >= PIECES
        assert await house.charged_as_counted() > PIECES


async def test_a_client_that_never_reads_and_leaves_frees_the_engine(valkey: EmbeddedServer) -> None:
    held = asyncio.Event()
    async with upstream(floods([0], held)) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        _, writer = await house.send(stream=True)
        await held.wait()
        writer.transport.abort()
        await up.peers[0].gone.wait()
        await house.nothing_left()
        await until(lambda: not up.connections)
        assert await house.metric("kvgate_requests_total", outcome="client_gone") == 1
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 0
        assert await house.charged_as_counted() > 0


async def test_a_reload_changes_how_long_a_client_may_leave_its_stream_unread(valkey: EmbeddedServer) -> None:
    async with (
        upstream(floods([0], asyncio.Event())) as up,
        gateway({"any": {"one": up.url}}, valkey.url) as house,
    ):
        _, writer = await house.send(stream=True)
        await until(lambda: bool(up.peers))
        await house.gateway.put(configured({"any": {"one": up.url}}, impatient))
        await up.peers[0].gone.wait()
        await house.quiet()
        assert await house.metric("kvgate_requests_total", outcome="client_slow") == 1
        writer.transport.abort()


def impatient(data: dict[str, Any]) -> None:
    data["routing"]["unread_timeout"] = "200ms"


async def test_a_client_that_never_reads_is_cut_and_counted_as_slow(valkey: EmbeddedServer) -> None:
    async with (
        upstream(floods([0], asyncio.Event())) as up,
        gateway({"any": {"one": up.url}}, valkey.url, impatient) as house,
    ):
        _, writer = await house.send(stream=True)
        await until(lambda: bool(up.peers))
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.metric("kvgate_requests_total", outcome="client_slow") == 1
        assert await house.metric("kvgate_attempts_total", outcome="neutral") == 1
        assert await house.metric("kvgate_attempts_total") == 1, (
            "a client that does not read is held against no replica"
        )
        assert await house.charged_as_counted() > 0
        writer.transport.abort()
