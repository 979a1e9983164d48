"""Streamed bytes from the engine to the client, as they come; facts and clocks on the side.

Rule: nothing per chunk but one scan and one write, and where nothing in it matters, of the very bytes that the engine
framed (docs/adr/0023). The head of the answer leaves with its first bytes, so that an engine that dies before them can
still be replaced.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec

from backends.chunks import body_of
from backends.exchange import Exchange, UpstreamFailed
from backends.sse import Scanner, Verdict
from gateway.clock import Clock
from gateway.extension import Meter, Unmetered
from gateway.metric_kinds import Series
from gateway.responder import Header, Source


class Sink(Protocol):
    """Where a stream goes: the responder, or what stands before it."""

    source: Source | None

    @property
    def started(self) -> bool: ...
    @property
    def takes_chunks(self) -> bool: ...
    def start(self, status: int, headers: Iterable[Header]) -> None: ...
    def write(self, data: bytes) -> None: ...
    def write_chunks(self, chunks: bytes, body_bytes: int) -> None: ...


@dataclass(frozen=True, slots=True)
class Renaming:
    """The field `model` as the engine writes it and as the client is to read it, in each way that JSON is spaced."""

    spellings: tuple[tuple[bytes, bytes], ...]

    @classmethod
    def between(cls, old: str, new: str) -> "Renaming":
        """From the name `old` to the name `new`."""
        return cls(tuple([(_field(space, old), _field(space, new)) for space in (b"", b" ")]))

    def apply(self, data: bytes) -> bytes:
        for old, new in self.spellings:
            data = data.replace(old, new)
        return data

    def begun(self, data: bytes) -> int:
        """How many of the last bytes may be the beginning of what is renamed."""
        if data.endswith(b"\n"):
            return 0  # nearly always: whole frames come
        sizes = (size for old, _ in self.spellings for size in range(1, len(old)) if data.endswith(old[:size]))
        return max(sizes, default=0)


def _field(space: bytes, name: str) -> bytes:
    return b'"model":' + space + msgspec.json.encode(name)


class Relay:
    """One stream. `first_at` is when the first content left, by the clock given; 0 before. `stalled`: the engine fell
    silent for longer than it may.
    """

    def __init__(
        self,
        responder: Sink,
        headers: Sequence[Header],
        scanner: Scanner,
        *,
        clock: Clock,
        gaps: Series,
        on_first: Callable[[], None],
        renaming: Renaming | None = None,
        meter: Meter | None = None,
    ) -> None:
        self._responder = responder
        self._headers = headers
        self._scanner = scanner
        self._clock = clock
        self._gaps = gaps
        self._on_first = on_first
        self._renaming = renaming
        self._meter: Meter = meter or Unmetered()
        self._held = b""
        self._last_at = 0.0
        self._exchange: Exchange | None = None
        self.first_at = 0.0
        self.stalled = False

    async def run(self, exchange: Exchange) -> Verdict:
        """Relay until the engine's answer ends. Raises `UpstreamFailed` if it ended before its first byte."""
        self._responder.source = self._exchange = exchange
        exchange.pipe(self.received, self.passed if self._responder.takes_chunks else None)
        broken = False
        try:
            await exchange.done
        except UpstreamFailed as failure:
            if not self._responder.started:
                raise
            failure.with_traceback(None)
            broken, self.stalled = True, failure.reason == "timeout"
        return self._ended(broken=broken)

    def passed(self, read: bytes) -> bool:
        """A piece of the body as the engine framed it: true if it went on, as it is but for the model's name."""
        if not self._last_at:
            return False
        body_bytes = self._scanner.unread(read)
        if not body_bytes:
            return False
        if self._scanner.frames >= self._meter.due_frames:
            self._meter.due()
        if self._renaming is None:
            self._responder.write_chunks(read, body_bytes)
        else:  # whole frames: no beginning of a name is held back
            self._responder.write(self._renaming.apply(body_of(read) or b""))
        now = self._clock()
        self._gaps.observe(now - self._last_at)
        self._last_at = now
        return True

    def received(self, data: bytes) -> None:
        """A piece of the body, in order."""
        out = self._scanner.feed(data)
        if self._scanner.frames >= self._meter.due_frames:
            self._meter.due()
        if self._renaming is not None:
            out = self._renamed(out, self._renaming)
        if not out:
            return
        self._send(out)
        if self._last_at:
            now = self._clock()
            self._gaps.observe(now - self._last_at)
            self._last_at = now
            return
        first = self._scanner.first_content
        if self._exchange is not None and (first or self._scanner.frames > 1):  # more than what opens a stream
            self._exchange.begun = True
        if first:
            self.first_at = self._last_at = self._clock()
            self._on_first()

    def _send(self, data: bytes) -> None:
        if not self._responder.started:
            self._responder.start(200, self._headers)
        self._responder.write(data)

    def _ended(self, *, broken: bool) -> Verdict:
        failed = self._scanner.error is not None
        verdict = self._scanner.finish()
        if broken and verdict == "complete" and not self._scanner.done:
            verdict = "truncated"  # some engines send no [DONE], but they end their body; one that was cut is not whole
        rest = self._held
        if verdict == "complete":
            rest += self._scanner.tail
            if self._renaming is not None:
                rest = self._renaming.apply(rest)
        elif verdict == "error" and not failed and self._responder.started:
            rest += self._scanner.tail + b"\n\n"  # the error itself: without its blank line nobody would read it
        if rest:
            self._send(rest)
        if not self._responder.started:
            raise UpstreamFailed("broken", before_reply=False)
        return verdict

    def _renamed(self, data: bytes, renaming: Renaming) -> bytes:
        """The name replaced; a beginning of it at the very end of `data` waits for what follows."""
        data = renaming.apply(self._held + data)
        keep = renaming.begun(data)
        self._held = data[len(data) - keep :]
        return data[: len(data) - keep]
