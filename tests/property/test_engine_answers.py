"""Whatever an engine answers, whole or damaged: it is read in one way, and what is taken for whole h11 takes for whole.

A connection is used again only when nothing has come behind the answer.
"""

import asyncio
from collections.abc import Iterable

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.connection import Connection
from backends.exchange import Exchange
from tests.property.test_front_requests import CHUNKS, ENDS, damaged, pieces
from tests.unit.gateway.streams import Pool, Wire

Answer = tuple[int, bytes]
"""Status and body."""

HEADERS = st.sampled_from(
    [b"server: uvicorn", b"connection: close", b"connection: keep-alive", b"keep-alive: timeout=5", b"x: ", b"y:z"]
)
INTERIM = st.sampled_from([b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 103 Hints\r\nlink: x\r\n\r\n"])


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    status = draw(st.sampled_from([200, 200, 200, 400, 503, 204, 304]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0"]))
    headers, body = [b"content-type: text/event-stream", *draw(st.lists(HEADERS, max_size=3))], b""
    framing = "none" if status in (204, 304) else draw(st.sampled_from(["length", "chunked", "chunked", "end"]))
    if framing == "length":
        body = draw(st.binary(max_size=20))
        headers.append(b"Content-Length: %d" % len(body))
    elif framing == "chunked":
        headers.append(b"Transfer-Encoding: chunked")
        parts = [size % len(data) + more + b"\r\n" + data + b"\r\n" for data, size, more in draw(st.lists(CHUNKS))]
        body = b"".join([*parts, draw(ENDS)])
    elif framing == "end":
        body = draw(st.binary(max_size=20))
    head = [b"HTTP/%b %d X" % (version, status), *draw(st.permutations(headers)), b"", b""]
    return b"".join(draw(st.lists(INTERIM, max_size=2))) + b"\r\n".join(head) + body


class Owner(Pool):
    """Notes whether a connection may be used again."""

    kept = False

    def freed(self, connection: Connection) -> None:
        self.kept = True


async def read(reads: Iterable[bytes]) -> tuple[Answer | None, bool]:
    """The answer if it came to its proper end, and whether the connection is kept. The engine closes behind `reads`."""
    owner, loop = Owner(), asyncio.get_running_loop()
    connection = Connection(owner, loop)
    connection.connection_made(Wire())
    exchange = Exchange(connection, loop, reused=False)
    connection.send(exchange, b"", 0.0)
    body: list[bytes] = []
    exchange.pipe(body.append)
    for data in reads:
        if not exchange.done.done():
            connection.data_received(data)
    if not exchange.done.done():
        connection.connection_lost(None)
    if exchange.done.exception() is not None:
        return None, owner.kept
    return (exchange.head.result().status, b"".join(body)), owner.kept


def by_h11(data: bytes) -> tuple[Answer | None, bool]:
    """The same as h11 reads it; it says that nothing has come behind the answer, where ours says what follows."""
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    connection.send(h11.EndOfMessage())
    status, body = 0, b""
    try:
        for more in (data, b""):
            connection.receive_data(more)
            while (event := connection.next_event()) is not h11.NEED_DATA:
                if isinstance(event, h11.Response):
                    status = event.status_code
                elif isinstance(event, h11.Data):
                    body += bytes(event.data)
                elif isinstance(event, h11.EndOfMessage):
                    behind = connection.trailing_data[0].strip(b"\r\n")  # an empty line may stand between two answers
                    return (status, body), not behind
    except h11.RemoteProtocolError:
        pass
    return None, False


STREAMS = st.tuples(answers(), st.just(b"") | st.just(b"\r\n") | answers()).map(b"".join).flatmap(damaged)


@settings(max_examples=150)
@given(STREAMS, st.lists(st.integers(0, 1_000), max_size=6))
def test_where_the_network_cuts_changes_nothing(data: bytes, cuts: list[int]) -> None:
    async def run() -> None:
        whole, _ = await read([data])
        assert (await read(pieces(data, cuts)))[0] == whole
        assert (await read(pieces(data, range(len(data)))))[0] == whole

    asyncio.run(run())


@settings(max_examples=300)
@given(STREAMS)
def test_no_answer_is_whole_that_h11_reads_in_another_way(data: bytes) -> None:
    ours, kept = asyncio.run(read([data]))
    theirs, nothing_behind = by_h11(data)
    if ours is not None and theirs is not None:
        assert ours == theirs
        assert nothing_behind or not kept
