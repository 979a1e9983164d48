"""The transport against a real server that misbehaves byte by byte."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Protocol

import pytest

from backends.exchange import UpstreamFailed
from backends.transport import Transport
from gateway.clock import monotonic

REQUEST = b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"

Script = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Upstream:
    """A server that answers each connection with the next script."""

    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.connections = 0
        self.port = 0
        self.closed = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        script = self.scripts.pop(0) if len(self.scripts) > 1 else self.scripts[0]
        try:
            await script(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self.closed.set()
            writer.close()


@pytest.fixture
async def upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    server = await asyncio.start_server(upstream.serve, "127.0.0.1", 0)
    upstream.port = server.sockets[0].getsockname()[1]
    yield upstream
    server.close()


def transport(upstream: Upstream, **seconds: float) -> Transport:
    return Transport(f"http://127.0.0.1:{upstream.port}", clock=monotonic, **seconds)


async def request_of(reader: asyncio.StreamReader) -> None:
    await reader.readuntil(b"\r\n\r\n")


def answers(*data: bytes, times: int = 1) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(times):
            await request_of(reader)
            for piece in data:
                writer.write(piece)
                await writer.drain()

    return script


async def stays_silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await request_of(reader)
    await reader.read()


def stays_silent_after(data: bytes) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(data)
        await stays_silent(reader, writer)

    return script


async def test_a_kept_connection_is_used_again(upstream: Upstream) -> None:
    upstream.scripts = [answers(OK, times=3)]
    wire = transport(upstream)
    for _ in range(3):
        exchange = await wire.open(REQUEST)
        assert await exchange.body() == b"ok"
    assert upstream.connections == 1
    wire.close()


async def test_a_stale_connection_is_replaced_once_and_unseen(upstream: Upstream) -> None:
    upstream.scripts = [answers(OK), answers(OK)]
    wire = transport(upstream)
    assert await (await wire.open(REQUEST)).body() == b"ok"
    await upstream.closed.wait()
    assert await (await wire.open(REQUEST)).body() == b"ok"
    assert upstream.connections == 2
    wire.close()


async def test_what_a_stale_connection_lost_goes_out_on_a_fresh_one_not_on_the_next_kept_one(
    upstream: Upstream,
) -> None:
    asked = 0

    async def once_and_away(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal asked
        await request_of(reader)
        asked += 1
        writer.write(OK)
        await request_of(reader)
        asked += 1

    upstream.scripts = [once_and_away]
    wire = transport(upstream)
    first, second = await asyncio.gather(wire.open(REQUEST), wire.open(REQUEST))
    assert [await first.body(), await second.body()] == [b"ok", b"ok"]
    assert await (await wire.open(REQUEST)).body() == b"ok"
    assert (asked, upstream.connections) == (2 + 1 + 1, 3)
    wire.close()


async def test_a_server_that_closes_without_a_word_was_not_reached(upstream: Upstream) -> None:
    upstream.scripts = [answers()]
    with pytest.raises(UpstreamFailed) as failed:
        await transport(upstream).open(REQUEST)
    assert (failed.value.reason, failed.value.before_reply) == ("unreachable", True)
    assert upstream.connections == 1


async def test_nobody_listening(unused_tcp_port: int) -> None:
    with pytest.raises(UpstreamFailed) as failed:
        await Transport(f"http://127.0.0.1:{unused_tcp_port}", clock=monotonic).open(REQUEST)
    assert (failed.value.reason, failed.value.before_reply) == ("unreachable", True)


async def test_a_body_that_ends_too_early_is_broken(upstream: Upstream) -> None:
    upstream.scripts = [answers(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok")]
    exchange = await transport(upstream).open(REQUEST)
    with pytest.raises(UpstreamFailed) as failed:
        await exchange.body()
    assert (failed.value.reason, failed.value.before_reply) == ("broken", False)


async def test_a_chunked_body_that_ends_too_early_is_broken(upstream: Upstream) -> None:
    upstream.scripts = [answers(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n")]
    exchange = await transport(upstream).open(REQUEST)
    parts: list[bytes] = []
    exchange.pipe(parts.append)
    with pytest.raises(UpstreamFailed):
        await exchange.done
    assert parts == [b"ok"]


async def test_a_body_without_a_length_ends_with_its_connection(upstream: Upstream) -> None:
    upstream.scripts = [answers(b"HTTP/1.1 200 OK\r\n\r\n", b"all ", b"of it")]
    assert await (await transport(upstream).open(REQUEST)).body() == b"all of it"


async def test_an_interim_answer_is_passed_over(upstream: Upstream) -> None:
    upstream.scripts = [answers(b"HTTP/1.1 100 Continue\r\n\r\n" + OK)]
    exchange = await transport(upstream).open(REQUEST)
    assert (await exchange.head).status == 200
    assert await exchange.body() == b"ok"


async def test_what_is_not_http_is_broken(upstream: Upstream) -> None:
    upstream.scripts = [answers(b"SSH-2.0-OpenSSH\r\n")]
    with pytest.raises(UpstreamFailed):
        await transport(upstream).open(REQUEST)


async def test_a_connection_that_the_server_will_close_is_not_kept(upstream: Upstream) -> None:
    upstream.scripts = [answers(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok")]
    wire = transport(upstream)
    await (await wire.open(REQUEST)).body()
    assert wire.open_connections == 0


async def test_silence_ends_at_the_sweep_after_the_deadline(upstream: Upstream) -> None:
    upstream.scripts = [stays_silent]
    wire = transport(upstream, first_byte_seconds=0.05)
    opening = asyncio.create_task(wire.open(REQUEST))
    while not opening.done():
        await asyncio.sleep(0.02)
        wire.sweep()
    with pytest.raises(UpstreamFailed) as failed:
        await opening
    assert (failed.value.reason, failed.value.before_reply) == ("timeout", True)


async def test_abort_and_cancel_close_the_connection_at_once(upstream: Upstream) -> None:
    upstream.scripts = [answers(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok"), stays_silent]
    wire = transport(upstream)
    upstream.scripts[0] = stays_silent
    opening = asyncio.create_task(wire.open(REQUEST))
    await asyncio.sleep(0.05)
    opening.cancel()
    await asyncio.wait_for(upstream.closed.wait(), 1.0)
    assert wire.open_connections == 0


async def test_bytes_beyond_the_answer_close_the_connection(upstream: Upstream) -> None:
    upstream.scripts = [answers(OK, b"more")]
    wire = transport(upstream)
    assert await (await wire.open(REQUEST)).body() == b"ok"
    await asyncio.wait_for(upstream.closed.wait(), 1.0)
    await asyncio.sleep(0.02)
    assert wire.open_connections == 0


EVIL = b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil"


@pytest.mark.parametrize("more", [EVIL, EVIL[:30], b"HTTP/1.1 100 Continue\r\n\r\n", b"x", b"\r\n" + EVIL[:1]])
async def test_an_answer_that_nobody_asked_for_is_part_of_no_other(upstream: Upstream, more: bytes) -> None:
    """Behind the answer in the same read, whole or begun: its connection is not used again."""
    upstream.scripts = [answers(OK + more, EVIL[30:], times=2), answers(OK)]
    wire = transport(upstream)
    for _ in range(2):
        exchange = await wire.open(REQUEST)
        assert (exchange.head.result().status, await exchange.body()) == (200, b"ok")
    assert upstream.connections == 2
    wire.close()


async def test_an_engine_that_changes_the_protocol_is_broken(upstream: Upstream) -> None:
    upstream.scripts = [answers(b"HTTP/1.1 101 X\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n" + OK)]
    with pytest.raises(UpstreamFailed) as failed:
        await transport(upstream).open(REQUEST)
    assert (failed.value.reason, failed.value.before_reply) == ("broken", True)


async def test_a_head_that_comes_early_does_not_shorten_the_wait_for_what_follows(upstream: Upstream) -> None:
    """Engines send the head of a stream at once, and its first token when the prompt is computed."""
    upstream.scripts = [stays_silent_after(STREAM_HEAD)]
    wire, sweep_at = clocked(upstream)
    exchange = await wire.open(REQUEST)
    for seconds in (0.5, 5.0, 9.9):
        sweep_at(seconds)
        assert not exchange.done.done()
    sweep_at(10.1)
    with pytest.raises(UpstreamFailed) as failed:
        await exchange.done
    assert failed.value.reason == "timeout"


@pytest.mark.parametrize(("begun", "until"), [(True, 1.5), (False, 10.0)], ids=["begun", "only kept alive"])
async def test_what_has_begun_to_come_must_go_on(upstream: Upstream, begun: bool, until: float) -> None:
    upstream.scripts = [stays_silent_after(STREAM_HEAD + b"2\r\nok\r\n")]
    came = asyncio.Event()
    wire, sweep_at = clocked(upstream)
    exchange = await wire.open(REQUEST)
    exchange.pipe(lambda _: came.set())
    await came.wait()
    exchange.begun = begun
    for seconds in (0.5, until - 0.1):
        sweep_at(seconds)
        assert not exchange.done.done()
    sweep_at(until + 0.1)
    with pytest.raises(UpstreamFailed):
        await exchange.done


async def test_an_exchange_that_is_held_back_is_not_one_that_stalls(upstream: Upstream) -> None:
    upstream.scripts = [stays_silent_after(STREAM_HEAD + b"2\r\nok\r\n")]
    came = asyncio.Event()
    wire, sweep_at = clocked(upstream)
    exchange = await wire.open(REQUEST)
    exchange.pipe(lambda _: came.set())
    await came.wait()
    sweep_at(0.5)
    exchange.pause()
    sweep_at(100.0)
    assert not exchange.done.done()
    exchange.resume()
    sweep_at(100.9)
    assert not exchange.done.done()
    sweep_at(101.1)
    with pytest.raises(UpstreamFailed):
        await exchange.done


@pytest.mark.parametrize(("rested_seconds", "connections"), [(3.9, 1), (4.1, 2)])
async def test_a_connection_that_rested_too_long_is_not_used_again(
    upstream: Upstream, rested_seconds: float, connections: int
) -> None:
    """Engines close theirs after 5 seconds (uvicorn's default); a request must not meet that."""
    upstream.scripts = [answers(OK, times=2)]
    wire, sweep_at = clocked(upstream)
    assert await (await wire.open(REQUEST)).body() == b"ok"
    sweep_at(rested_seconds, sweep=False)
    assert await (await wire.open(REQUEST)).body() == b"ok"
    assert upstream.connections == connections
    wire.close()


async def test_a_connection_that_rested_too_long_is_closed(upstream: Upstream) -> None:
    upstream.scripts = [answers(OK)]
    wire, sweep_at = clocked(upstream)
    assert await (await wire.open(REQUEST)).body() == b"ok"
    sweep_at(3.9)
    assert wire.open_connections == 1
    sweep_at(4.1)
    assert wire.open_connections == 0


async def test_a_kept_connection_that_breaks_off_within_its_answer_was_not_stale(upstream: Upstream) -> None:
    """The engine has seen the request: it does not go out again unasked."""

    async def begins_twice(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await answers(OK)(reader, writer)
        await request_of(reader)
        writer.write(OK[:9])

    upstream.scripts = [begins_twice]
    wire = transport(upstream)
    assert await (await wire.open(REQUEST)).body() == b"ok"
    with pytest.raises(UpstreamFailed) as failed:
        await wire.open(REQUEST)
    assert (failed.value.reason, failed.value.stale, upstream.connections) == ("unreachable", False, 1)


async def test_a_connection_that_does_not_come_about_in_time(upstream: Upstream) -> None:
    """Here the server accepts and never speaks TLS."""
    upstream.scripts = [stays_silent]
    wire = Transport(f"https://127.0.0.1:{upstream.port}", clock=monotonic, connect_seconds=0.05)
    with pytest.raises(UpstreamFailed) as failed:
        await asyncio.wait_for(wire.open(REQUEST), 30.0)
    assert (failed.value.reason, failed.value.before_reply) == ("unconnected", True)


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"


class SweepAt(Protocol):
    def __call__(self, seconds: float, *, sweep: bool = True) -> None: ...


def clocked(upstream: Upstream) -> tuple[Transport, SweepAt]:
    """A transport with patience of 10 s for the first byte and 1 s after it, and what sweeps it at a time."""
    now = [0.0]
    wire = Transport(f"http://127.0.0.1:{upstream.port}", clock=lambda: now[0], first_byte_seconds=10, idle_seconds=1)

    def sweep_at(seconds: float, *, sweep: bool = True) -> None:
        now[0] = seconds
        if sweep:
            wire.sweep()

    return wire, sweep_at


async def test_a_paused_exchange_stops_reading(upstream: Upstream) -> None:
    sent = 0

    async def floods(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await request_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000000\r\n\r\n")
        while sent < 100_000_000:
            writer.write(b"x" * 100_000)
            await writer.drain()
            sent += 100_000

    upstream.scripts = [floods]
    exchange = await transport(upstream).open(REQUEST)
    received = 0

    def sink(data: bytes) -> None:
        nonlocal received
        received += len(data)

    exchange.pipe(sink)
    exchange.pause()
    await asyncio.sleep(0.1)
    held = received
    await asyncio.sleep(0.1)
    assert received == held
    assert sent < 50_000_000
    exchange.resume()
    await exchange.done
    assert received == 100_000_000
