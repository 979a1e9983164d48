"""The front over real sockets: what is refused, what is answered, in which order, and when a connection ends."""

import asyncio
import re
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
from tests.house import until

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
        post(b"abc", "Content-Length: " + "0" * 3_000 + "3"),
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x, y\r\n\r\n",
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
        "long-cl",
        "te-in-1.0",
        "no-host",
        "two-hosts",
        "hosts",
    ],
)
async def test_what_is_not_plain_http_1_1_is_refused_and_closed(ask: Ask, data: bytes) -> None:
    answer = await ask(data)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert answer.count(b"HTTP/1.1 ") == 1


@pytest.mark.parametrize("version", [b"0.9", b"1.2", b"2.0"])
async def test_other_versions_are_refused(ask: Ask, version: bytes) -> None:
    answer = await ask(b"GET / HTTP/%b\r\nHost: x\r\n\r\n" % version if version != b"0.9" else b"GET /\r\n\r\n")
    assert re.match(rb"HTTP/1\.1 (400|505) ", answer)
    assert answer.count(b"date: ") == 1


H2C = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA")


async def test_a_wish_for_another_protocol_is_ignored_and_the_body_read(ask: Ask) -> None:
    """Java's HttpClient asks for HTTP/2 with its first request on every connection."""
    data = post(b"abc", *H2C, "Content-Length: 3") + post(b"ab", "Content-Length: 2", CLOSE)
    answer = await ask(data)
    assert [part[:8] for part in answer.split(b"POST ")[1:]] == [b"/ 3HTTP/", b"/ 2"]
    chunked = await ask(post(b"3\r\nabc\r\n0\r\n\r\n", *H2C, "Transfer-Encoding: chunked") + post(b"", CLOSE))
    assert [part[:8] for part in chunked.split(b"POST ")[1:]] == [b"/ 3HTTP/", b"/ 0"]


async def test_a_wish_for_another_protocol_without_a_body(ask: Ask) -> None:
    wish = b"GET /x HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    answer = await ask(wish + post(b"", "Content-Length: 0", CLOSE))
    assert b"GET /x 0HTTP/1.1 200" in answer
    assert answer.endswith(b"POST / 0")


async def test_a_tunnel_is_refused(ask: Ask) -> None:
    answer = await ask(b"CONNECT x:443 HTTP/1.1\r\nHost: x:443\r\n\r\nmore")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.count(b"HTTP/1.1 ") == 1


async def test_a_body_that_is_awaited_is_asked_for_when_the_answers_before_it_are_out(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    expecting = post(b"", "Content-Length: 3", "Expect: 100-continue", CLOSE)
    writer.write(post(b"", "Content-Length: 0", path="/slow") + post(b"", "Content-Length: 0", path="/2") + expecting)
    before = await asyncio.wait_for(reader.readuntil(b"100 Continue\r\n\r\n"), 2.0)
    assert [part[:6] for part in before.split(b"POST ")[1:]] == [b"/slow ", b"/2 0HT"]
    writer.write(b"abc")
    assert (await asyncio.wait_for(reader.read(), 2.0)).endswith(b"POST / 3")
    writer.close()


async def test_http_1_0_knows_no_100_continue(ask: Ask) -> None:
    answer = await ask(post(b"abc", "Content-Length: 3", "Expect: 100-continue", version="1.0"))
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_an_http_1_0_client_is_told_that_its_connection_is_kept(ask: Ask) -> None:
    kept = post(b"abc", "Content-Length: 3", "Connection: keep-alive", version="1.0")
    first, second = (await ask(kept + post(b"ab", "Content-Length: 2", version="1.0"))).split(b"POST / 3")
    assert b"connection: keep-alive\r\n" in first
    assert b"connection: close\r\n" in second
    assert second.endswith(b"POST / 2")


@pytest.mark.parametrize("path", ["/", "/slow"])
async def test_a_look_up_whose_client_closes_its_side_is_answered_and_the_connection_closed(
    server: Server, path: str
) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    writer.write_eof()
    answer = await asyncio.wait_for(reader.read(), 2.0)  # nobody sweeps here: it ends by itself
    assert answer.count(b"HTTP/1.1 200 ") == 2
    assert answer.endswith(b"GET /2 0")
    writer.close()


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


@pytest.mark.parametrize("over", [0, 1])
@pytest.mark.parametrize("behind", [b"", b"GET /slow HTTP/1.1\r\nHost: x\r\n\r\n"])
async def test_the_limit_of_a_head_is_exact_however_it_is_read(server: Server, over: int, behind: bytes) -> None:
    """Whole, behind another request, and byte by byte."""
    head = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nA: %b\r\n\r\n"
    data = head % (b"a" * (LIMITS.head_bytes - len(head % b"") + over))
    for size in (len(behind + data), 1_000):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        for at in range(0, len(behind + data), size):
            writer.write((behind + data)[at : at + size])
            await asyncio.sleep(0.002)
        answer = await asyncio.wait_for(reader.read(), 2.0)
        writer.close()
        assert answer.count(b"HTTP/1.1 200 ") == bool(behind) + (not over)
        assert answer.count(b"HTTP/1.1 431 ") == (over and not behind)


@pytest.mark.parametrize(
    "data",
    [
        post(b"a" * 3_000_000, "Content-Length: 3000000"),
        post(b"2dc6c0\r\n" + b"a" * 3_000_000 + b"\r\n0\r\n\r\n", "Transfer-Encoding: chunked"),
        b"GET / HTTP/1.1\r\nHost: x\r\nA: " + b"a" * 3_000_000,
        b"garbage\r\n" * 300_000,
    ],
    ids=["length", "chunked", "head", "garbage"],
)
async def test_who_sends_too_much_reads_why_it_is_refused(server: Server, data: bytes) -> None:
    """What is still on its way when an answer closes the connection must not reset it before the answer is read."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(data)
    await asyncio.wait_for(writer.drain(), 5.0)
    answer = await asyncio.wait_for(reader.read(), 5.0)
    assert re.match(rb"HTTP/1\.1 4(00|13|31) ", answer)
    writer.close()


async def test_who_goes_on_sending_after_a_refusal_is_cut_in_the_end(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"garbage\r\n")
    assert (await asyncio.wait_for(reader.read(), 5.0)).startswith(b"HTTP/1.1 400 ")
    assert len(server.connections) == 1
    next(iter(server.connections)).timed_out()
    await until(lambda: not server.connections)
    writer.close()


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


async def test_a_server_that_drains_answers_what_has_begun_and_says_that_it_closes() -> None:
    go_on = asyncio.Event()

    async def held(request: Request, responder: Responder) -> None:
        await go_on.wait()
        await echo(request, responder)

    server = Server(held, refuse, Tasks(), monotonic, LIMITS)
    await server.listen("127.0.0.1", 0)
    running, half, idle = [await asyncio.open_connection("127.0.0.1", server.port) for _ in range(3)]
    running[1].write(post(b"", "Content-Length: 0") + post(b"", "Content-Length: 0", path="/later"))
    half[1].write(post(b"ab", "Content-Length: 3"))
    await until(lambda: len(server.connections) == 3 and len(server.tasks) == 1 and receiving(server))
    draining = asyncio.create_task(server.drain(30.0))
    assert await asyncio.wait_for(idle[0].read(), 5.0) == b""
    half[1].write(b"c")
    await until(lambda: len(server.tasks) == 2)
    go_on.set()
    for (reader, writer), end in ((half, b"POST / 3"), (running, b"POST / 0")):
        answer = await asyncio.wait_for(reader.read(), 5.0)
        assert answer.endswith(end)
        assert b"connection: close\r\n" in answer
        writer.close()
    assert await draining
    idle[1].close()


def receiving(server: Server) -> bool:
    return any(one.receiving for one in server.connections)


async def test_a_refused_client_does_not_hold_up_a_server_that_drains(server: Server) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post(b"a", "Content-Length: 5000"))
    assert (await asyncio.wait_for(reader.read(), 5.0)).startswith(b"HTTP/1.1 413 ")
    assert await asyncio.wait_for(server.drain(3600.0), 5.0)
    writer.close()


async def test_half_a_request_does_not_hold_up_a_server_that_drains_for_longer_than_it_may(server: Server) -> None:
    _, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(post(b"ab", "Content-Length: 3"))
    await until(lambda: receiving(server))
    assert await asyncio.wait_for(server.drain(0.1), 5.0)
    writer.close()
