"""One request to an engine and what comes back: futures for its head and its end, a sink for its bytes.

Rule: an exchange ends exactly once, and whoever holds it can pause it (back-pressure) or abort it (the engine then
notices and stops generating).
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Literal, Protocol

import msgspec

Sink = Callable[[bytes], None]
Through = Callable[[bytes], bool]
"""Offered a read as the engine framed it, from the beginning of a chunk on; true if it has been dealt with."""
Reason = Literal["unreachable", "unconnected", "timeout", "broken", "aborted"]
"""`unconnected`: no connection came about in time."""


class UpstreamFailed(Exception):
    """The exchange failed. `before_reply`: the answer had not begun, so trying elsewhere is safe. `stale`: a
    kept-alive connection died before any byte, so the replica itself is not to blame.

    Its exchange holds it and its traceback holds whoever held the exchange: who catches it drops the traceback.
    """

    def __init__(self, reason: Reason, *, before_reply: bool, stale: bool = False) -> None:
        super().__init__(reason)
        self.reason: Reason = reason
        self.before_reply = before_reply
        self.stale = stale


class Head(msgspec.Struct, frozen=True):
    """Status and headers of an answer; header names are lower case, of a name that comes twice the first counts."""

    status: int
    headers: Mapping[bytes, bytes]

    @property
    def encoded(self) -> bool:
        """Whether the body is compressed, although no request of ours allows it."""
        return self.headers.get(b"content-encoding", b"identity").lower() != b"identity"


class Line(Protocol):
    """What an exchange asks of its connection."""

    def fail(self, reason: Reason) -> None: ...
    def pause(self) -> None: ...
    def resume(self) -> None: ...
    def narrow(self) -> None: ...


class Exchange:
    """One request on its way and its answer. `done` resolves when the answer ended as HTTP says it should.

    `begun`: what was waited for has begun to come, by the word of whoever reads it; from then on the idle limit holds.
    """

    __slots__ = ("_connection", "_held", "_sink", "begun", "done", "head", "reused", "through")

    def __init__(self, connection: Line, loop: asyncio.AbstractEventLoop, *, reused: bool) -> None:
        self.head: asyncio.Future[Head] = loop.create_future()
        self.done: asyncio.Future[None] = loop.create_future()
        self.reused = reused
        self.begun = False
        self._connection: Line | None = connection
        self._held: list[bytes] = []
        self._sink: Sink | None = None
        self.through: Through | None = None

    def pipe(self, sink: Sink, through: Through | None = None) -> None:
        """Hand every byte of the body to `sink`, at once, in the order it came, but for what `through` takes."""
        if self._connection is not None:  # an exchange that has ended lets go of who listened
            self._sink, self.through = sink, through
        held, self._held = self._held, []
        for data in held:
            sink(data)

    async def body(self) -> bytes:
        """The whole body. Raises `UpstreamFailed` when it broke off."""
        self.begun = True
        await self.done
        return b"".join(self._held)

    def abort(self) -> None:
        """Close the connection: the engine notices and stops generating."""
        if self._connection is not None:
            self._connection.fail("aborted")

    def pause(self) -> None:
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        if self._connection is not None:
            self._connection.resume()

    def narrow(self) -> None:
        """Let little come in while nobody reads: for an answer that is taken more slowly than it is made."""
        if self._connection is not None:
            self._connection.narrow()

    def received(self, data: bytes) -> None:
        if self._sink is None:
            self._held.append(data)
        else:
            self._sink(data)

    def ended(self, failure: UpstreamFailed | None) -> None:
        self._connection = self._sink = self.through = (
            None  # whoever listened may hold this exchange: no circle is left behind
        )
        if failure is None:
            if not self.done.done():
                self.done.set_result(None)
            return
        for future in (self.head, self.done):
            if not future.done():
                future.set_exception(failure)
                future.exception()  # read once: whoever awaits it still gets it, nobody is warned if none does
