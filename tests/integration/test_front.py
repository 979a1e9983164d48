"""The front over real sockets: what is refused, what is answered, in which order, and when a connection ends."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from email.utils import parsedate_to_datetime

import pytest

from gateway.call import Request
from gateway.client_connection import Limits
from gateway.clock import monotonic
from gateway.responder import Responder
from gateway.server import Server
from gateway.tasks import Tasks

LIMITS = Limits(head_bytes=4_096, body_bytes=1_000, head_seconds=0.2, body_seconds=0.2, idle_seconds=0.2)

Ask = Callable[[bytes], Awaitable[bytes]]


async def echo(request: Request, responder: Responder) -> None:
    """Answers with what was understood; `/slow` waits, `/stream` streams two chunks, `/gone` waits for the end."""
    if request.path == "/slow":
        await asyncio.sleep(0.05)
    if request.path == "/stream":
        responder.start(200, [(b"content-type", b"text/plain")])
        responder.write(b"one")
        responder.write(b"two")
        responder.finish()
        return
    understood = f"{request.method} {request.path} {len(request.body)}".encode()
    responder.reply(200, [(b"content-type", b"text/plain")], understood)


def refuse(status: int, message: str, responder: Responder) -> None:
    responder.reply(status, [], message.encode())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server(echo, refuse, Tasks(), monotonic, LIMITS)
    await server.listen("127.0.0.1", 0)
    yield server
    await server.drain(1.0)
    server.close()


@pytest.fixture
def ask(server: Server) -> Ask:
    async def ask(data: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.write(data)
        try:
            return await asyncio.wait_for(reader.read(), 2.0)
        finally:
            writer.close()

    return ask


def post(body: bytes, *lines: str, path: str = "/", version: str = "1.1") -> bytes:
    head = [f"POST {path} HTTP/{version}", "Host: x", *lines]
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


CLOSE = "Connection: close"


async def test_a_request_is_answered_and_the_connection_closed_when_asked(ask: Ask) -> None:
    answer = await ask(post(b"abc", "Content-Length: 3", CLOSE))
    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"connection: close" in answer
    assert answer.endswith(b"\r\n\r\nPOST / 3")


async def test_an_answer_has_a_date(ask: Ask) -> None:
    answer = await ask(post(b"", "Content-Length: 0", CLOSE))
    line = next(line for line in answer.split(b"\r\n") if line.startswith(b"date: "))
    assert abs(time.time() - parsedate_to_datetime(line[6:].decode()).timestamp()) < 60


async def test_chunked_bodies_are_read(ask: Ask) -> None:
    answer = await ask(post(b"2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n", "Transfer-Encoding: chunked", CLOSE))
    assert answer.endswith(b"POST / 3")


async def test_pipelined_requests_are_answered_in_order(ask: Ask) -> None:
    many = b"".join(
        f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode() for path in ["/slow", *map("/{}".format, range(20))]
    )
    answer = await ask(many + b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    found = [part.split(b" ")[0] for part in answer.split(b"GET ")[1:]]
    assert found == [b"/slow", *(f"/{number}".encode() for number in range(20)), b"/last"]


async def test_a_stream_is_chunked_for_http_1_1_and_closed_for_http_1_0(ask: Ask) -> None:
    new = await ask(post(b"", "Content-Length: 0", CLOSE, path="/stream"))
    old = await ask(post(b"", "Content-Length: 0", path="/stream", version="1.0"))
    assert new.endswith(b"\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    assert old.endswith(b"\r\n\r\nonetwo")
    assert b"transfer-encoding" not in old


async def test_head_has_no_body(ask: Ask) -> None:
    answer = await ask(b"HEAD /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
    assert b"content-length: 9\r\n" in answer
    assert answer.endswith(b"\r\n\r\n")


async def test_expect_100_continue_is_answered_before_the_body_comes(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post(b"", "Content-Length: 3", "Expect: 100-continue", CLOSE))
    assert await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 2.0) == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"abc")
    assert (await asyncio.wait_for(reader.read(), 2.0)).endswith(b"POST / 3")
    writer.close()


@pytest.mark.parametrize(
    "data",
    [
        post(b"0\r\n\r\n", "Content-Length: 3", "Transfer-Encoding: chunked"),
        post(b"abc", "Content-Length: 3", "Content-Length: 4"),
        post(b"abc", "Content-Length: +3"),
        b"POST / HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
        b"POST / HTTP/1.1\r\nHost: x\rA: b\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\nContent-Length: 0\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost : x\r\nContent-Length: 0\r\n\r\n",
        post(b"3\nabc\n0\n\n", "Transfer-Encoding: chunked"),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
    ids=[
        "te+cl",
        "two-cl",
        "plus-cl",
        "bare-lf",
        "bare-cr",
        "obs-fold",
        "space-colon",
        "chunk-lf",
        "h2",
        "tls",
    ],
)
async def test_what_is_not_plain_http_1_1_is_refused_and_closed(ask: Ask, data: bytes) -> None:
    answer = await ask(data)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_an_upgrade_is_ignored_and_the_connection_closed(ask: Ask) -> None:
    answer = await ask(b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nmore")
    assert answer.endswith(b"GET /x 0")


async def test_other_transfer_encodings_are_refused(ask: Ask) -> None:
    answer = await ask(post(b"0\r\n\r\n", "Transfer-Encoding: gzip, chunked"))
    assert answer.startswith(b"HTTP/1.1 501 ")


async def test_a_body_over_the_limit_is_refused_by_its_length_before_it_is_sent(ask: Ask) -> None:
    answer = await ask(post(b"", "Content-Length: 1001"))
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"longer than 1000 bytes" in answer


async def test_a_chunked_body_over_the_limit_is_refused(ask: Ask) -> None:
    answer = await ask(post(b"3e9\r\n" + b"a" * 1001 + b"\r\n0\r\n\r\n", "Transfer-Encoding: chunked"))
    assert answer.startswith(b"HTTP/1.1 413 ")


async def test_a_head_over_the_limit_is_refused(ask: Ask) -> None:
    answer = await ask(b"GET / HTTP/1.1\r\nA: " + b"a" * 5_000)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_slow_heads_and_bodies_are_refused_and_idle_connections_closed(server: Server, ask: Ask) -> None:
    async def sweep() -> None:
        while True:
            await asyncio.sleep(0.05)
            server.sweep()

    sweeper = asyncio.create_task(sweep())
    slow_head, slow_body, idle, silent = await asyncio.gather(
        ask(b"GET / HTT"), ask(post(b"ab", "Content-Length: 3")), ask(post(b"abc", "Content-Length: 3")), ask(b"")
    )
    sweeper.cancel()
    assert slow_head.startswith(b"HTTP/1.1 408 ")
    assert slow_body.startswith(b"HTTP/1.1 408 ")
    assert idle.endswith(b"POST / 3")
    assert silent == b""
