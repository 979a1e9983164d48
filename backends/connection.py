"""One HTTP/1.1 connection to a replica: llhttp's callbacks in, an exchange's events out.

Rule: a connection serves one exchange at a time and goes back to its owner only when the engine said that it stays
open. Bytes are handed on as they came, joined per read: one read, one write. Between two chunks the parser knows
nothing of what came before, so a read that begins there may go past it (docs/adr/0023).
"""

import asyncio
import socket
from typing import Final, Protocol, cast

import httptools

from backends.exchange import Exchange, Head, Reason, Through, UpstreamFailed

NARROW_BYTES: Final = 8_192
"""What the kernel is asked to hold of a stream that is paced: some twenty tokens instead of a thousand."""


class Owner(Protocol):
    """Who keeps the connections of a replica."""

    def idle_deadline(self) -> float: ...
    def freed(self, connection: "Connection") -> None: ...
    def lost(self, connection: "Connection") -> None: ...


class Connection(asyncio.Protocol):
    """One connection to the replica; a parser's callbacks in, an exchange's events out."""

    def __init__(self, owner: Owner, loop: asyncio.AbstractEventLoop) -> None:
        self._owner = owner
        self.loop = loop  # held, because asking which loop runs is a system call on some versions of Python
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._parser: httptools.HttpResponseParser
        self._headers: dict[bytes, bytes] = {}
        self._parts: list[bytes] = []
        self._kept_alive = False
        self._excess = False
        self._touched = False
        self._answered = False
        self._complete = False
        self._framed = False
        self._between = False
        self._heard = False
        self._through: Through | None = None
        self.exchange: Exchange | None = None
        self.deadline = float("inf")
        self.idle_since = 0.0

    def send(self, exchange: Exchange, data: bytes, deadline: float) -> None:
        self.exchange, self.deadline = exchange, deadline
        self._touched = self._answered = self._complete = self._framed = self._between = self._heard = False
        self._through = None
        assert self._transport is not None
        self._transport.write(data)

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def fail(self, reason: Reason) -> None:
        """End the exchange, if any, and close the connection at once."""
        exchange, self.exchange = self.exchange, None
        self._through = None
        self._owner.lost(self)
        if self._transport is not None:
            self._transport.abort()
        if exchange is not None:
            stale = exchange.reused and not self._touched and reason == "unreachable"
            exchange.ended(UpstreamFailed(reason, before_reply=not self._answered, stale=stale))

    def pause(self) -> None:
        if self._transport is not None and not self._paused and not self._transport.is_closing():
            self._paused = True
            self.deadline = float("inf")  # a client that reads slowly is not an engine that stalls
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._transport is not None and self._paused and not self._transport.is_closing():
            self._paused = False
            self.deadline = self._owner.idle_deadline()
            self._transport.resume_reading()

    def narrow(self) -> None:
        """Have the kernel hold little of what comes; the connection is not used again afterwards."""
        found = None if self._transport is None else self._transport.get_extra_info("socket")
        if found is not None:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, NARROW_BYTES)
            self._excess = True

    def late(self, now: float) -> bool:
        """Whether the exchange is past its time; asked about twice a second. What came since the last time counts.

        A comment that keeps a stream alive before its first token does not: that wait has a bound of its own.
        """
        if self._heard and self.exchange is not None and self.exchange.begun:
            self._heard = False
            if not self._paused:
                self.deadline = self._owner.idle_deadline()
        return self.deadline < now

    # asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are of classes of its own
        self._parser = httptools.HttpResponseParser(self)  # not before: each holds the other until the connection ends

    def data_received(self, data: bytes) -> None:
        if self._through is not None and self._through(data):
            self._heard = True
            return
        if self.exchange is None:
            self.fail("broken")
            return
        self._touched = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._deliver()
            if not self._complete:  # what follows a complete answer says nothing about it
                self.fail("broken")
                return
            self._excess = True
        self._deliver()
        if self._complete:
            self._finish()
        elif self.exchange is not None:
            # A read that ends within a size line does not end in LF, or the parser would have told of the chunk.
            self._through = self.exchange.through if self._between and data.endswith(b"\n") else None

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        exchange = self.exchange
        if exchange is not None and error is None and self._answered and not self._framed:
            self.exchange = None
            exchange.ended(None)  # a body without a length ends with its connection
        self.fail("broken" if self._answered else "unreachable")
        del self._parser  # it holds this connection, so the two would wait for the garbage collector

    # llhttp

    def on_message_begin(self) -> None:
        if self._complete:
            raise ValueError("an answer that nobody asked for")  # the parser stops at it

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.setdefault(name.lower(), value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, {}
        if status < 200:
            return
        self._answered = True
        self._framed = b"content-length" in headers or b"transfer-encoding" in headers
        if self.exchange is not None and not self.exchange.head.done():
            self.exchange.head.set_result(Head(status, headers))

    def on_chunk_header(self) -> None:
        self._between = False

    def on_chunk_complete(self) -> None:
        self._between = True

    def on_body(self, data: bytes) -> None:
        self._parts.append(data)

    def on_message_complete(self) -> None:
        self._complete = self._answered
        self._kept_alive = self._parser.should_keep_alive()  # llhttp forgets it once the message is behind it

    def _deliver(self) -> None:
        if parts := self._parts:
            self._parts = []
            self._heard = True  # not by a head alone: engines send it before the prompt is computed
            if self.exchange is not None:
                self.exchange.received(parts[0] if len(parts) == 1 else b"".join(parts))

    def _finish(self) -> None:
        exchange, self.exchange = self.exchange, None
        self._through = None
        self.deadline = float("inf")
        if self._paused:
            self.resume()
        if self._kept_alive and not self._excess:
            self._owner.freed(self)
        else:
            self._owner.lost(self)
            if self._transport is not None:
                self._transport.close()
        if exchange is not None:
            exchange.ended(None)
