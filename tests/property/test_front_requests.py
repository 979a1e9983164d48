"""Whatever comes in on a connection is read in one way: not by where the network cuts it, not otherwise than h11 does.

h11 is another reading of the same RFCs, in Python. Where two servers behind one another read a request differently, one
can be smuggled into the other; so what we take, h11 must take too, to the same end. It may take more.
"""

import asyncio
from collections.abc import Iterable
from itertools import pairwise
from typing import Final

import h11
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.call import Request
from gateway.client_connection import ClientConnection, Limits
from gateway.responder import Responder
from gateway.server import Server
from gateway.tasks import Tasks
from tests.unit.gateway.streams import Wire

LIMITS: Final = Limits(head_bytes=8_192, body_bytes=5_000)
LENIENT: Final = ("illegal request line", "no request line")
"""Where llhttp takes more: two spaces between the words of the first line, and an empty line before it."""
HOPS: Final = (b"upgrade", b"http2-settings")

Taken = tuple[str, bytes, dict[bytes, list[bytes]]]
"""Method, body, headers with their values in order."""

HEADERS = st.sampled_from(
    [
        *(b"A: b", b"a:b", b"X-Y:  z  ", b"Cookie: a=b; c", b"E:", b"Connection: close", b"Connection: keep-alive"),
        *(b"Expect: 100-continue", b"Connection: Upgrade, X\r\nUpgrade: h2c", b"Q: \xe9", b"Te: trailers"),
    ]
)
CHUNKS = st.tuples(
    st.binary(min_size=1, max_size=18), st.sampled_from([b"%x", b"%X", b"0%x"]), st.sampled_from([b"", b";a=b", b';"'])
)
ENDS = st.sampled_from([b"0\r\n\r\n", b"0;x\r\n\r\n", b"0\r\nT: u\r\n\r\n"])
ODD = st.sampled_from(
    [
        *(
            b"\r",
            b"\n",
            b"\0",
            b" ",
            b"\t",
            b":",
            b",",
            b"\r\n",
            b"\r\n ",
            b"+",
            b"-",
            b"0x",
            b"\x0b",
            b"\x7f",
            b"\xff",
        ),
        *(b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"transfer-encoding: identity\r\n"),
        *(b"Host: y\r\n", b"0\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1", b";"),
    ]
)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    method = draw(st.sampled_from([b"GET", b"POST", b"POST", b"HEAD", b"OPTIONS", b"DELETE"]))
    target = draw(st.sampled_from([b"/", b"/v1/x", b"/a?b=c", b"http://h/x", b"*", b"/%41"]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.1", b"1.0"]))
    headers, body = [b"Host: x", *draw(st.lists(HEADERS, max_size=3))], b""
    framing = draw(st.sampled_from(["none", "length", "length", "chunked", "chunked"]))
    if framing == "length":
        body = draw(st.binary(max_size=12))
        headers.append(b"Content-Length: %d" % len(body))
    elif framing == "chunked":
        headers.append(b"Transfer-Encoding: chunked")
        body = b"".join(
            [size % len(data) + more + b"\r\n" + data + b"\r\n" for data, size, more in draw(st.lists(CHUNKS))]
        )
        body += draw(ENDS)
    lines = draw(st.permutations(headers))
    return b"\r\n".join([b"%b %b HTTP/%b" % (method, target, version), *lines, b"", b""]) + body


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    """What a client sends: requests, one head again and again, and here and there what does not belong."""
    sent = draw(st.lists(requests(), min_size=1, max_size=3))
    return draw(damaged(b"".join(sent[:1] * 3 if draw(st.integers(0, 4)) == 0 else sent)))


@st.composite
def damaged(draw: st.DrawFn, data: bytes) -> bytes:
    """Whole, or with something put in, left out, changed or said twice."""
    for _ in range(draw(st.sampled_from([0, 0, 1, 1, 2]))):
        at = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["put in", "leave out", "change", "repeat"])):
            case "put in":
                data = data[:at] + draw(ODD) + data[at:]
            case "leave out":
                data = data[:at] + data[at + draw(st.integers(1, 3)) :]
            case "change":
                data = data[:at] + draw(st.binary(min_size=1, max_size=1)) + data[at + 1 :]
            case _:
                data = data[: at + draw(st.integers(1, 30))] + data[at:]
    return data


class Line(Wire):
    """The other side of a connection."""

    ended = False

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def resume_reading(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass


async def read(reads: Iterable[bytes]) -> tuple[list[Taken], bool, list[int]]:
    """The requests that are taken, whether the last of them closes the connection, and what else is refused."""
    taken: list[Request] = []
    refused: list[int] = []

    async def handle(request: Request, responder: Responder) -> None:
        taken.append(request)
        responder.reply(200, [], b"")

    def refuse(status: int, _: str, responder: Responder) -> None:
        refused.append(status)
        responder.reply(status, [], b"")

    server = Server(handle, refuse, Tasks(), lambda: 0.0, LIMITS)
    line, connection = Line(), ClientConnection(server)
    connection.connection_made(line)
    for data in reads:
        if line.is_closing() or line.ended:
            break
        connection.data_received(data)
        await server.tasks.drain(30.0)
    closes = bool(taken) and not taken[-1].keep_alive
    return [understood(one.method, one.body, one.headers.items()) for one in taken], closes, refused


def understood(method: str, body: bytes, headers: Iterable[tuple[bytes, bytes]]) -> Taken:
    """The same whether a header that comes twice is joined or not, and without what is said to the next hop alone."""
    named: dict[bytes, list[bytes]] = {}
    for name, value in headers:
        if name not in HOPS:
            named.setdefault(name, []).extend([part.strip(b" \t") for part in value.split(b",")])
    return method, body, named


def by_h11(data: bytes) -> tuple[list[Taken], str]:
    """The requests that h11 takes, and what it then complains of; "" if it only waits for more, or closes."""
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=8_192)
    connection.receive_data(data)
    taken: list[Taken] = []
    request, body = h11.Request(method="GET", target="/", headers=[("host", "x")]), b""
    try:
        while not isinstance(event := connection.next_event(), type(h11.NEED_DATA) | h11.ConnectionClosed):
            if isinstance(event, h11.Request):
                request, body = event, b""
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                taken.append(understood(request.method.decode(), body, [(n.lower(), v) for n, v in request.headers]))
                connection.send(h11.Response(status_code=200, headers=[("content-length", "0")]))
                connection.send(h11.EndOfMessage())
                if connection.our_state is h11.MUST_CLOSE or connection.their_state is not h11.DONE:
                    return taken, ""
                connection.start_next_cycle()
    except h11.RemoteProtocolError as error:
        return taken, str(error)
    return taken, ""


def pieces(data: bytes, cuts: Iterable[int]) -> list[bytes]:
    borders = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(borders) if start < stop]


@settings(max_examples=100)
@given(streams(), st.lists(st.integers(0, 1_000), max_size=6))
def test_where_the_network_cuts_changes_nothing(data: bytes, cuts: list[int]) -> None:
    async def run() -> None:
        whole, closes, refused = await read([data])
        for reads in (pieces(data, cuts), pieces(data, range(len(data)))):
            again, _, refused_again = await read(reads)
            assert again == whole
            # What follows a request that closes is read or not; what comes behind one under way is told so or not.
            assert closes or not (refused and refused_again) or refused_again == refused

    asyncio.run(run())


@settings(max_examples=200)
@given(streams())
def test_nothing_is_taken_that_h11_reads_in_another_way(data: bytes) -> None:
    taken, _, _ = asyncio.run(read([data]))
    theirs, complaint = by_h11(data)
    both = min(len(taken), len(theirs))
    assert taken[:both] == theirs[:both]
    assert not complaint or len(taken) <= len(theirs) or complaint.startswith(LENIENT)
