"""One client's HTTP/1.1 connection: bytes in through llhttp, requests out, answered one at a time and in order.

Rule: what is not well-formed HTTP is refused with a 400 and the connection closed; a body longer than the limit, or
sent too slowly, is refused before it is held in memory.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Final, Protocol, cast

import httptools

from gateway.call import Request
from gateway.clock import Clock
from gateway.known_head import KnownHead
from gateway.request_head import NOT_HTTP, path_of, query_of, refusal_of, size_of, written
from gateway.responder import Responder
from gateway.tasks import Tasks

Handle = Callable[[Request, Responder], Coroutine[None, None, None]]
Refuse = Callable[[int, str, Responder], None]
"""Answers a request that never became one: status, message, where to."""

QUEUED_REQUESTS = 8
"""Pipelined requests kept waiting on one connection before we stop reading from it."""
OTHER_PROTOCOLS: Final = (b"upgrade", b"http2-settings")


@dataclass(frozen=True, slots=True)
class Limits:
    """What one connection may take. Sizes in bytes, times in seconds."""

    head_bytes: int = 65_536
    body_bytes: int = 32 * 1024 * 1024
    head_seconds: float = 30.0
    body_seconds: float = 120.0
    idle_seconds: float = 75.0
    unread_seconds: float = 60.0
    """How long a client may leave its stream unread while we hold the engine back for it."""
    linger_seconds: float = 10.0
    """How long what a refused client still sends is thrown away, so that it can read the refusal first."""


class Front(Protocol):
    """The server, as its connections see it."""

    handle: Handle
    refuse: Refuse
    tasks: Tasks
    clock: Clock
    limits: Limits
    draining: bool
    date: bytes
    connections: "set[ClientConnection]"


class ClientConnection(asyncio.Protocol):
    """One client's connection: bytes in, `Request`s out, answered one at a time."""

    def __init__(self, server: Front) -> None:
        self._server = server
        self._limits = server.limits
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._stalled_bytes = 0
        self._body: list[bytes] = []
        self._body_bytes = 0
        self._in_head = False
        self._in_body = False
        self._http10 = False
        self._upgrades = False
        self._refused = False
        self._ending = server.draining  # nothing is taken up any more but what is here already
        self._costs = False
        self._waiting: deque[Request] = deque()
        self._whole = b""  # what was read, while it may be one whole request
        self._known: KnownHead | None = None
        self.responder: Responder | None = None
        self.deadline = 0.0
        self.unread_since = float("inf")

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are of classes of its own
        self.send: Callable[[bytes], object] = (
            self._transport.write
        )  # without a step between: it is called for every token
        self.deadline = self._server.clock() + self._limits.head_seconds
        self._server.connections.add(self)

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        idle = self.responder is None and not (self._in_head or self._in_body)
        if idle and self._known is not None and (request := self._known.again(data)) is not None:
            self.deadline = float("inf")
            self._serve(request)
            return
        self._whole = data if idle else b""
        self._stalled_bytes += len(data)  # the parser's callbacks set it back whenever the request gets on
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._stay(data[upgrade.args[0] :])
            return
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserError:
            self._refuse(400, NOT_HTTP)
        if self._stalled_bytes > self._limits.head_bytes:
            self._refuse_head()

    def eof_received(self) -> bool:
        """A client that closed its side: a call that costs an engine ends, a mere look-up is still answered."""
        self._ending = True
        return self.responder is not None and not self._costs

    def connection_lost(self, error: Exception | None) -> None:
        self._server.connections.discard(self)
        self._waiting.clear()
        del self._parser  # it holds this connection, so the two would wait for the garbage collector
        responder, self.responder = self.responder, None
        if responder is not None:
            responder.client_left()

    def pause_writing(self) -> None:
        self.unread_since = self._server.clock()
        if self.responder is not None and self.responder.source is not None:
            self.responder.source.pause()

    def resume_writing(self) -> None:
        self.unread_since = float("inf")
        if self.responder is not None and self.responder.source is not None:
            self.responder.source.resume()

    # llhttp

    def on_message_begin(self) -> None:
        self._url, self._headers, self._body = b"", {}, []
        self._body_bytes = 0
        self._in_head = True
        self.deadline = self._server.clock() + self._limits.head_seconds

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer: what comes after the body says nothing about who sent it
        name = name.lower()
        self._headers[name] = self._headers[name] + b", " + value if name in self._headers else value

    def on_headers_complete(self) -> None:
        if self._refused:
            return
        self._in_head, self._in_body = False, True
        self._stalled_bytes = 0
        self.deadline = self._server.clock() + self._limits.body_seconds
        limits, headers, version = self._limits, self._headers, self._parser.get_http_version()
        self._http10 = version == "1.0"
        if not 0 < len(self._whole) <= limits.head_bytes and self._too_long():
            self._refuse_head()
        elif (refusal := refusal_of(version, headers, limits.body_bytes)) is not None:
            self._refuse(*refusal)
        elif self._parser.should_upgrade():
            self._upgrades = True  # the parser takes this for the end of the request
        elif b"expect" in headers and self.responder is None:
            self._call_for_body()

    def on_chunk_header(self) -> None:
        self._stalled_bytes = 0

    def on_body(self, data: bytes) -> None:
        if self._refused:
            return
        self._stalled_bytes = 0
        self._body_bytes += len(data)
        self._body.append(data)
        if self._body_bytes > self._limits.body_bytes:
            self._refuse(413, f"The body is longer than {self._limits.body_bytes} bytes.")

    def on_message_complete(self) -> None:
        if self._refused or self._upgrades:
            return
        self._in_body = False
        self._stalled_bytes = 0
        self.deadline = float("inf")
        request = Request(
            method=self._parser.get_method().decode("ascii"),
            path=path_of(self._url),
            query=query_of(self._url) if b"?" in self._url else "",
            headers=self._headers,
            body=self._body[0] if len(self._body) == 1 else b"".join(self._body),
            keep_alive=self._parser.should_keep_alive(),
            http10=self._http10,
        )
        self._body = []
        if self.responder is None:
            self._known = KnownHead.of(self._whole, request, self._limits.body_bytes) if self._whole else None
            self._whole = b""
            self._serve(request)
            return
        self._waiting.append(request)
        if len(self._waiting) >= QUEUED_REQUESTS and self._transport is not None:
            self._transport.pause_reading()

    # what a responder asks of us

    @property
    def date(self) -> bytes:
        return self._server.date

    def answered(self, *, keep: bool) -> None:
        self.responder = None
        if keep and self._waiting:
            self._serve(self._waiting.popleft())
            if self._transport is not None and not self._waiting:
                self._transport.resume_reading()
        elif not keep or self._ending:
            self._end()
        elif self.deadline == float("inf"):
            self.deadline = self._server.clock() + self._limits.idle_seconds
        else:  # the next request is coming in; it has its own time
            self._call_for_body()

    def cut(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # ours

    def timed_out(self) -> None:
        """Past the deadline: nothing asked yet is closed quietly, half a request is answered with a 408."""
        if self.receiving:
            self._refuse(408, "The request was not complete in time.")
        elif self.responder is None:
            self._close()

    def unread(self) -> None:
        """The client does not read what it asked for."""
        if self.responder is not None:
            self.responder.too_slow()
        else:
            self.cut()

    @property
    def receiving(self) -> bool:
        """Whether a request has begun to come in that may still be answered."""
        return (self._in_head or self._in_body) and not self._refused

    def drain(self) -> None:
        """Take up nothing more than what is being answered, or has begun to come in."""
        self._ending = True
        self._waiting.clear()
        if self.responder is not None:
            self.responder.close_after()
        elif not self.receiving:
            self._close()

    def _serve(self, request: Request) -> None:
        self._costs = request.method == "POST"
        keep = request.keep_alive and (not self._ending or bool(self._waiting))
        responder = Responder(self, keep=keep, http10=request.http10, head_only=request.method == "HEAD")
        self.responder = responder
        task = self._server.tasks.start(self._server.handle(request, responder), name="request")
        responder.cancel = task.cancel

    def _call_for_body(self) -> None:
        """Send for a body that waits to be asked for (RFC 9110, 10.1.1); not within the answer to another request."""
        if self._in_body and not self._http10 and self._headers.get(b"expect", b"").lower() == b"100-continue":
            self.send(b"HTTP/1.1 100 Continue\r\n\r\n")

    def _stay(self, rest: bytes) -> None:
        """Read a request that wishes for another protocol, as a server may (RFC 9110, 7.8), as if it did not.

        The parser has left out its body: the head goes through another one, without the wish, and `rest` behind it.
        """
        self._upgrades = False
        method = self._parser.get_method()
        if method == b"CONNECT":
            self._refuse(400, "This server is no tunnel.")
        if self._refused:
            return
        self._parser = httptools.HttpRequestParser(self)
        headers = {name: value for name, value in self._headers.items() if name not in OTHER_PROTOCOLS}
        self._stalled_bytes = 0
        self.data_received(written(method, self._url, headers) + rest)

    def _too_long(self) -> bool:
        """Asked only of a head that did not come in one read, or in one that was longer with all that came behind."""
        return size_of(self._parser.get_method(), self._url, self._headers) > self._limits.head_bytes

    def _refuse_head(self) -> None:
        self._refuse(431, f"The request head is longer than {self._limits.head_bytes} bytes.")

    def _refuse(self, status: int, message: str) -> None:
        if self._refused:
            return
        self._refused = self._ending = True
        self._body = []
        if self.responder is None:  # else the answer under way ends first and then closes
            self.responder = Responder(self, keep=False, http10=False)
            self._server.refuse(status, message, self.responder)

    def _end(self) -> None:
        """Nothing more is answered. What a refused client still sends is read and thrown away for a while.

        Closing while some of it is unread would reset the connection, and the client would never see the refusal.
        """
        transport = self._transport
        if not self._refused or transport is None or transport.is_closing() or not transport.can_write_eof():
            self._close()
            return
        self.deadline = self._server.clock() + self._limits.linger_seconds
        transport.write_eof()
        transport.resume_reading()

    def _close(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.close()
