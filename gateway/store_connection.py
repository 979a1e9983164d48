"""One connection to one server, shared by all requests: commands go out in one write per loop turn.

Rule: replies come in the order of the commands, so a queue is all that matches them. A call that is given up keeps
its place in the queue until its reply has come. When the connection ends, everything in the queue ends with it.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import cast

import hiredis

from budgets.script import Argument
from gateway.store_call import Call, StoreCounters, StoreSettings, StoreUnavailable

OnError = Callable[[Call, str], None]
_NOTHING = object()
_ReplyError = hiredis.ReplyError
_packed = cast("Callable[[tuple[Argument, ...]], bytes]", hiredis.pack_command)  # its own types say a tuple of one
_ASKING = _packed(("ASKING",))


class Connection(asyncio.Protocol):
    """Commands out, replies in. `on_error(call, message)` decides what an error reply means."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        counters: StoreCounters,
        on_error: OnError,
        on_lost: Callable[[], None],
        settings: StoreSettings,
    ) -> None:
        self._loop = loop
        self._counters = counters
        self._settings = settings
        self._on_error = on_error
        self._on_lost = on_lost
        self._reader = hiredis.Reader(notEnoughData=_NOTHING)
        self._waiting: deque[Call] = deque()
        self._out: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.Handle | None = None
        self._timer_at = float("inf")  # kept here: what uvloop gives for a moment very near cannot be asked
        self._misses = 0  # timeouts since a reply last came in time, one at most per length of a timeout
        self._missed_at = float("-inf")

    @property
    def alive(self) -> bool:
        return self._transport is not None

    def send(self, call: Call) -> None:
        """Queue a call; it leaves at the end of this turn of the loop."""
        if not self._out:
            self._loop.call_soon(self._flush)
        if call.asking:
            self._out.append(_ASKING + _packed(call.command))
            self._waiting.append(self._nobody(call.deadline))
        else:
            self._out.append(_packed(call.command))
        self._waiting.append(call)
        if call.deadline < self._timer_at:
            self._set_timer(call.deadline)

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        gets, next_call = self._reader.gets, self._waiting.popleft
        try:
            while (reply := gets()) is not _NOTHING:
                self._answer(next_call(), reply)
        except (hiredis.ProtocolError, IndexError):
            self.abort()  # not a Redis server, or out of step: nothing that follows can be trusted

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._out.clear()
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, deque()
        self._on_lost()  # first, so that whoever wakes up below already finds the connection gone
        for call in waiting:
            call.fail(StoreUnavailable("the connection to the store ended"))

    # Inside

    def _nobody(self, deadline: float) -> Call:
        """A place in the queue for a reply that nobody waits for."""
        call = Call((), self._loop.create_future(), deadline)
        call.future.cancel()
        return call

    def _flush(self) -> None:
        out = self._out
        if self._transport is not None and out:
            self._counters.round_trips += 1
            self._counters.calls += len(out)
            self._transport.write(b"".join(out) if len(out) > 1 else out[0])
        self._out = []

    def _answer(self, call: Call, reply: object) -> None:
        future = call.future
        if future.done():
            return
        if not call.patient:
            self._misses = 0
        try:
            if isinstance(reply, _ReplyError):
                self._on_error(call, str(reply))
            else:
                future.set_result(call.read(reply))
        except Exception as fault:  # noqa: BLE001 - whatever it is, it is for whoever asked
            trace = fault.__traceback__  # begins with this frame, which holds the future
            future.set_exception(fault.with_traceback(trace and trace.tb_next))

    def _set_timer(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = when
        self._timer = self._loop.call_at(when, self._look_again)

    def _look_again(self) -> None:
        # After a stall of the loop itself the replies may be lying in the socket: let it read once before judging.
        self._timer = self._loop.call_later(0.001, self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, float("inf")
        now = self._loop.time()
        late = [call for call in self._waiting if call.deadline <= now and not call.future.done()]
        for call in late:
            call.fail(StoreUnavailable("the store did not answer in time"))
        if late:
            self._counters.timeouts += len(late)
            self._miss(now)
        if self._misses >= self._settings.misses_to_open:
            self.abort()  # what still waits here would wait in vain; a new connection has to prove itself first
        pending = [call.deadline for call in self._waiting if not call.future.done()]
        if pending:
            self._set_timer(min(pending))

    def _miss(self, now: float) -> None:
        # Many calls in flight at one pause of the server are one miss, not many.
        if now - self._missed_at >= self._settings.call_timeout_seconds:
            self._misses += 1
            self._missed_at = now
