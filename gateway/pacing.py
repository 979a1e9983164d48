"""Streams held to so many tokens a second, for all streams of a tenant in this worker together.

Rule: what waits is at most what one read of the engine's connection brought; then the engine is not read from until it
has left, so that it waits and not our memory. A stream takes its next place only when its last frame has left, so
streams of one tenant take turns.
"""

import asyncio
import re
from collections import deque
from collections.abc import Iterable
from typing import Final

from gateway.clock import Clock
from gateway.responder import Header, Responder, Source

FRAME_ENDS: Final = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)|(?<=\r\r)")


class Schedule:
    """When the next token of a tenant may leave, on the clock of whoever asks."""

    __slots__ = ("_free_at",)

    def __init__(self) -> None:
        self._free_at = 0.0

    def next(self, tokens_per_second: float, now: float) -> float:
        """Take the next place: the moment of it, now or later."""
        at = max(self._free_at, now)
        self._free_at = at + 1 / tokens_per_second
        return at


class Pace:
    """So many tokens a second on a tenant's schedule."""

    __slots__ = ("schedule", "tokens_per_second")

    def __init__(self, schedule: Schedule, tokens_per_second: float) -> None:
        self.schedule = schedule
        self.tokens_per_second = tokens_per_second


class PacedResponder:
    """A responder whose frames leave by a pace: a frame is taken for a token. Stands between relay and responder."""

    takes_chunks = False

    def __init__(self, inner: Responder, pace: Pace, clock: Clock) -> None:
        self._inner = inner
        self._pace = pace
        self._clock = clock
        self._held: deque[bytes] = deque()
        self._exchange: Source | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._unread = False
        self._empty = asyncio.Event()
        self._empty.set()

    @property
    def started(self) -> bool:
        return self._inner.started

    @property
    def source(self) -> Source | None:
        return self._exchange

    @source.setter
    def source(self, exchange: Source | None) -> None:
        self._exchange = exchange
        self._inner.source = self

    def start(self, status: int, headers: Iterable[Header]) -> None:
        self._inner.start(status, headers)

    def write(self, data: bytes) -> None:
        """Frames to send, each in its turn."""
        self._held.extend([frame for frame in FRAME_ENDS.split(data) if frame])
        if self._held:
            self._empty.clear()
            if self._exchange is not None:
                self._exchange.pause()
            self._go_on()

    def write_chunks(self, chunks: bytes, body_bytes: int) -> None:
        """Never asked for: frames are taken one by one."""
        raise AssertionError("frames that are paced are not written as chunks")

    async def drained(self) -> None:
        """Wait until everything has left."""
        await self._empty.wait()

    def close(self) -> None:
        """Nothing leaves any more."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        self._held.clear()
        self._empty.set()

    # What the client's connection says.

    def pause(self) -> None:
        self._unread = True
        if self._exchange is not None:
            self._exchange.pause()

    def resume(self) -> None:
        self._unread = False
        self._go_on()

    def _go_on(self) -> None:
        """Send what may leave now; come back when the next may."""
        while self._held and self._timer is None and not self._unread:
            now = self._clock()
            at = self._pace.schedule.next(self._pace.tokens_per_second, now)
            if at > now:
                self._timer = asyncio.get_running_loop().call_later(at - now, self._due)
            else:
                self._inner.write(self._held.popleft())
        if not self._held and not self._unread:
            self._empty.set()
            if self._exchange is not None:
                self._exchange.resume()

    def _due(self) -> None:
        self._timer = None
        if self._held:
            self._inner.write(self._held.popleft())
        self._go_on()
