"""The answer to one request: a whole reply, or a head, chunks and an end.

Rule: nothing is written for a client that left, and an answer that cannot be ended as HTTP demands closes the
connection, so that a cut answer never looks complete.
"""

from collections.abc import Callable, Iterable
from http import HTTPStatus
from typing import Final, Protocol

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


class Responder:
    """Answers one request on its connection.

    `on_gone` is called once if the client leaves before the end; `cancel` ends the task that serves the request; `tee`
    is told what the client gets, for a history. `sent_bytes` are those of the body.
    """

    __slots__ = (
        "_chunked",
        "_head_only",
        "_keep",
        "_line",
        "cancel",
        "finished",
        "gone",
        "on_gone",
        "sent_bytes",
        "slow",
        "source",
        "started",
        "status",
        "tee",
    )

    def __init__(self, line: Line, *, keep: bool, http10: bool, head_only: bool = False) -> None:
        self._line = line
        self._keep = keep
        self._chunked = not http10
        self._head_only = head_only
        self.status = 0
        self.sent_bytes = 0
        self.started = False
        self.finished = False
        self.gone = False
        self.slow = False
        self.on_gone: Callable[[], object] | None = None
        self.cancel: Callable[[], object] | None = None
        self.source: Source | None = None
        self.tee: Callable[[bytes], object] | None = None

    def reply(self, status: int, headers: Iterable[Header], body: bytes) -> None:
        """A whole answer of known length."""
        if self.gone:
            return
        self.started, self.status = True, status
        self.sent_bytes = len(body)
        if self.tee is not None:
            self.tee(body)
        head = self._head(status, headers, b"content-length: %d\r\n" % len(body))
        self._line.send(head if self._head_only else head + body)
        self._end()

    def start(self, status: int, headers: Iterable[Header]) -> None:
        """The head of an answer whose length is not known: chunked, or ended by closing for an HTTP/1.0 client."""
        self.started, self.status = True, status
        self._keep = self._keep and self._chunked
        if not self.gone:
            self._line.send(self._head(status, headers, b"transfer-encoding: chunked\r\n" if self._chunked else b""))

    def write(self, data: bytes) -> None:
        if data and not self.gone:
            self.sent_bytes += len(data)
            if self.tee is not None:
                self.tee(data)
            self._line.send(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    @property
    def takes_chunks(self) -> bool:
        """Whether what is framed as chunks already may go out as it is."""
        return self._chunked and self.tee is None

    def write_chunks(self, chunks: bytes, body_bytes: int) -> None:
        """Whole chunks of a started answer, and how much of its body is in them."""
        if not self.gone:
            self.sent_bytes += body_bytes
            self._line.send(chunks)

    def finish(self) -> None:
        """The proper end of a started answer."""
        if self.gone or self.finished:
            return
        if self._chunked:
            self._line.send(b"0\r\n\r\n")
        self._end()

    def cut(self) -> None:
        """End a started answer so that the client sees it as broken."""
        if not self.gone and not self.finished:
            self.finished = True
            self.source = None
            self._line.cut()

    def close_after(self) -> None:
        """Told by the connection: it takes nothing more after this answer, which says so if it can."""
        self._keep = False

    def too_slow(self) -> None:
        """Told by the connection: the client has left its stream unread for too long, the connection is cut."""
        self.slow = True
        self._line.cut()

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
        close = (b"" if self._chunked else KEPT) if self._keep else CLOSED
        line = STATUS_LINES.get(status) or b"HTTP/1.1 %d Unknown\r\n" % status  # engines may use any number
        return b"".join((line, self._line.date, lines, framing, close, b"\r\n"))

    def _end(self) -> None:
        self.finished = True
        self.source = None
        self._line.answered(keep=self._keep)
