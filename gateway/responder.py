"""The answer to one request: a whole reply, or a head, chunks and an end.

Rule: nothing is written for a client that left, and an answer that cannot be ended as HTTP demands closes the
connection, so that a cut answer never looks complete.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, Protocol

import msgspec

Header = tuple[bytes, bytes]

STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
STATUS_LINES[499] = b"HTTP/1.1 499 Client Closed Request\r\n"
STATUS_LINES[529] = b"HTTP/1.1 529 Overloaded\r\n"
CLOSED: Final = b"connection: close\r\n"
KEPT: Final = b"connection: keep-alive\r\n"
"""For HTTP/1.0, where a connection that nobody says is kept is closed."""


class Line(Protocol):
    """What an answer asks of its connection."""

    @property
    def date(self) -> bytes:
        """The `date` header line of this moment (RFC 9110, 6.6.1)."""
        ...

    def send(self, data: bytes, /) -> object: ...
    def answered(self, *, keep: bool) -> None: ...
    def cut(self) -> None: ...


class Source(Protocol):
    """Where streamed bytes come from, so that a slow client slows the engine instead of filling our memory."""

    def pause(self) -> None: ...
    def resume(self) -> None: ...


class Responder(msgspec.Struct, eq=False):
    """Answers one request on its connection.

    `on_gone` is called once if the client leaves before the end; `cancel` ends the task that serves the request; `tee`
    is told what the client gets, for a history. `sent_bytes` are those of the body.
    """

    line: Line
    keep: bool
    http10: bool
    head_only: bool = False
    status: int = 0
    sent_bytes: int = 0
    started: bool = False
    finished: bool = False
    gone: bool = False
    slow: bool = False
    on_gone: Callable[[], object] | None = None
    cancel: Callable[[], object] | None = None
    source: Source | None = None
    tee: Callable[[bytes], object] | None = None

    def reply(self, status: int, headers: Iterable[Header], body: bytes) -> None:
        """A whole answer of known length."""
        if self.gone:
            return
        self.started, self.status = True, status
        self.sent_bytes = len(body)
        if self.tee is not None:
            self.tee(body)
        head = self._head(status, headers, b"content-length: %d\r\n" % len(body))
        self.line.send(head if self.head_only else head + body)
        self._end()

    def start(self, status: int, headers: Iterable[Header]) -> None:
        """The head of an answer whose length is not known: chunked, or ended by closing for an HTTP/1.0 client."""
        self.started, self.status = True, status
        self.keep = self.keep and not self.http10
        if not self.gone:
            self.line.send(self._head(status, headers, b"" if self.http10 else b"transfer-encoding: chunked\r\n"))

    def write(self, data: bytes) -> None:
        if data and not self.gone:
            self.sent_bytes += len(data)
            if self.tee is not None:
                self.tee(data)
            self.line.send(data if self.http10 else b"%x\r\n%b\r\n" % (len(data), data))

    @property
    def takes_chunks(self) -> bool:
        """Whether what is framed as chunks already may go out as it is."""
        return self.tee is None and not self.http10

    def write_chunks(self, chunks: bytes, body_bytes: int) -> None:
        """Whole chunks of a started answer, and how much of its body is in them."""
        if not self.gone:
            self.sent_bytes += body_bytes
            self.line.send(chunks)

    def finish(self) -> None:
        """The proper end of a started answer."""
        if self.gone or self.finished:
            return
        if not self.http10:
            self.line.send(b"0\r\n\r\n")
        self._end()

    def cut(self) -> None:
        """End a started answer so that the client sees it as broken."""
        if not self.gone and not self.finished:
            self.finished = True
            self.source = None
            self.line.cut()

    def close_after(self) -> None:
        """Told by the connection: it takes nothing more after this answer, which says so if it can."""
        self.keep = False

    def too_slow(self) -> None:
        """Told by the connection: the client has left its stream unread for too long, the connection is cut."""
        self.slow = True
        self.line.cut()

    def client_left(self) -> None:
        """Told by the connection: the client is gone."""
        if self.finished or self.gone:
            return
        self.gone = True
        self.source = None
        if self.on_gone is not None:
            self.on_gone()

    def _head(self, status: int, headers: Iterable[Header], framing: bytes) -> bytes:
        lines = b"\r\n".join((*map(b": ".join, headers), b""))
        close = (KEPT if self.http10 else b"") if self.keep else CLOSED
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status  # engines may use any number
        return b"".join((line, self.line.date, lines, framing, close, b"\r\n"))

    def _end(self) -> None:
        self.finished = True
        self.source = None
        self.line.answered(keep=self.keep)
