"""What one connection takes for a request, whatever way its bytes are read."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.call import Request
from gateway.client_connection import QUEUED_REQUESTS, ClientConnection, Limits
from gateway.clock import monotonic
from gateway.responder import Responder
from gateway.server import Server
from gateway.tasks import Tasks
from tests.unit.gateway.streams import Wire


async def understood(request: Request, responder: Responder) -> None:
    """Answers with the headers and the size of the body."""
    names = b" ".join(sorted(request.headers))
    responder.reply(200, [], b"%d %b" % (len(request.body), names))


def refuse(status: int, message: str, responder: Responder) -> None:
    responder.reply(status, [], message.encode())


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    server = Server(understood, refuse, Tasks(), monotonic, Limits(head_bytes=2_000, body_bytes=100_000))
    await server.listen("127.0.0.1", 0)
    yield server
    await server.drain(30.0)
    server.close()


async def accepted(server: Server) -> ClientConnection:
    """The one connection, once the listener has taken it."""
    while not server.connections:  # noqa: ASYNC110 - a listener tells nobody
        await asyncio.sleep(0)
    return next(iter(server.connections))


async def ask(server: Server, *pieces: bytes) -> bytes:
    """Everything that is answered to `pieces`, each of which is read on its own."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    connection = await accepted(server)
    for piece in pieces:
        connection.data_received(piece)
    answer = await asyncio.wait_for(reader.read(), 30.0)
    writer.close()
    return answer


CHUNKED = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"


async def test_what_comes_after_the_body_is_no_header(server: Server) -> None:
    answer = await ask(server, CHUNKED + b"3\r\nabc\r\n0\r\nAuthorization: Bearer x\r\nX-Session-Id: y\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n3 connection host transfer-encoding")


async def test_what_comes_after_the_body_is_bounded(server: Server) -> None:
    answer = await ask(server, CHUNKED + b"3\r\nabc\r\n0\r\nX: ", *[b"a" * 500] * 5)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_head_is_bounded_over_many_reads(server: Server) -> None:
    answer = await ask(server, b"GET / HTTP/1.1\r\nHost: x\r\n", *[b"X: " + b"a" * 400 + b"\r\n"] * 6)
    assert answer.startswith(b"HTTP/1.1 431 ")


async def test_a_body_longer_than_a_head_is_no_long_head(server: Server) -> None:
    answer = await ask(server, CHUNKED, *[b"1\r\nx\r\n" * 600] * 5, b"0\r\n\r\n")
    assert answer.endswith(b"\r\n\r\n3000 connection host transfer-encoding")


async def test_a_read_that_ends_a_body_and_begins_a_head_is_no_long_head(server: Server) -> None:
    first = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n"
    second = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
    answer = await ask(server, first + b"a" * 3000, b"a" * 2000 + second, b"\r\n")
    assert answer.count(b"HTTP/1.1 200 OK") == 2


@pytest.mark.parametrize(
    "line",
    [
        b"Content-Length: ",
        b"Content-Length: 3, 3",
        b"Content-Length: 1e3",
        b"Content-Length: 99999999999999999999",
        b"Content-Length: 3\r\nContent-Length: 3",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    ],
)
async def test_a_doubtful_length_is_refused(server: Server, line: bytes) -> None:
    answer = await ask(server, b"POST / HTTP/1.1\r\nHost: x\r\n" + line + b"\r\n\r\nabc")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_what_follows_a_closing_request_is_not_read(server: Server) -> None:
    answer = await ask(
        server, b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\nGET /more HTTP/1.1\r\nHost: x\r\n\r\n"
    )
    assert answer.count(b"HTTP/1.1 ") == 1


class Line(Wire):
    """A transport that notes whether it is read from."""

    reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


async def test_of_requests_that_wait_for_an_answer_before_them_only_some_are_taken() -> None:
    go_on = asyncio.Event()

    async def waits(request: Request, responder: Responder) -> None:
        await go_on.wait()
        responder.reply(200, [], b"")

    line, server = Line(), Server(waits, refuse, Tasks(), monotonic, Limits())
    connection = ClientConnection(server)
    connection.connection_made(line)
    for taken in range(1 + QUEUED_REQUESTS):
        assert line.reading, taken
        connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert not line.reading
    go_on.set()
    while not line.reading:  # noqa: ASYNC110
        await asyncio.sleep(0)
    await server.drain(30.0)


@pytest.mark.parametrize("reads_again", [False, True])
async def test_who_leaves_an_answer_unread_for_too_long_is_cut_and_who_reads_on_is_not(reads_again: bool) -> None:
    now, closed = [0.0], asyncio.Event()

    async def stays(request: Request, responder: Responder) -> None:
        responder.start(200, [])
        await closed.wait()

    server = Server(stays, refuse, Tasks(), lambda: now[0], Limits(unread_seconds=60))
    await server.listen("127.0.0.1", 0)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    connection = await accepted(server)
    connection.data_received(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    connection.pause_writing()
    for now[0] in (59.0, 61.0):
        if reads_again and now[0] == 61.0:
            connection.resume_writing()
        server.sweep()
        await asyncio.sleep(0)
    assert bool(server.connections) is reads_again
    closed.set()
    server.close()
    await server.drain(30.0)
    assert (await reader.read()).count(b"\r\n0\r\n\r\n") == 0
    writer.close()


@pytest.mark.parametrize(
    ("piece", "told"),
    [
        (b"", b""),
        (b"GET / HT", b"HTTP/1.1 408 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\n", b"HTTP/1.1 408 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nab", b"HTTP/1.1 408 "),
    ],
)
async def test_half_a_request_that_takes_too_long_is_told_so(server: Server, piece: bytes, told: bytes) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    connection = await accepted(server)
    if piece:
        connection.data_received(piece)
    connection.timed_out()
    answer = await asyncio.wait_for(reader.read(), 30.0)
    assert answer.startswith(told) and bool(answer) == bool(told)
    writer.close()
