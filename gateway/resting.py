"""Sessions that nobody uses any more, summarised before they are forgotten (`expire: summarize`).

Rule: sessions are digests, so the text of a session's last call waits in the memory of the gateway that served it,
within a bound, and nowhere else. Shortly before the session's idle end its record is written, unless another gateway
has served it since, or it was deleted; the record outlives the session and is found again by what it covers. What waits
here when the gateway stops is forgotten.
"""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, cast

from gateway.clock import Clock
from gateway.errors import ModelNotFound
from gateway.snapshot import Snapshot
from gateway.source import Source
from gateway.store import Store, StoreError
from gateway.tasks import Tasks
from policies.summary import Wanted

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of text that waits; the one that has waited longest goes."""
MOST_AHEAD_SECONDS: Final = 60.0
SHARE_AHEAD: Final = 0.25
"""So long before the end a record is begun, at most: a minute, or a quarter of the time a session has."""
SLACK_SECONDS: Final = 0.5
"""The end of a call is written a little after it is noted here."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, order=True)
class _Waiting:
    """`due_at` by the monotonic clock; `idle_seconds`: for how long the session has been idle then."""

    due_at: float
    number: int
    key: Key = field(compare=False)
    source: Source = field(compare=False)
    wanted: Wanted = field(compare=False)
    idle_seconds: float = field(compare=False)

    @property
    def bytes(self) -> int:
        return len(self.source.call.body) + sum(map(len, self.source.call.messages))


class Resting:
    """Waits. `make` writes a record; `snapshot` gives the configuration in force."""

    def __init__(
        self,
        make: Callable[[Source, Wanted], object],
        snapshot: Callable[[], Snapshot],
        store: Store,
        background: Tasks,
        clock: Clock,
    ) -> None:
        self._make = make
        self._snapshot = snapshot
        self._store = store
        self._background = background
        self._clock = clock
        self._waiting: dict[Key, _Waiting] = {}
        self._due: list[_Waiting] = []
        self._bytes = 0
        self._number = 0
        self._watching: asyncio.Task[None] | None = None

    def hold(self, source: Source, wanted: Wanted | None) -> None:
        """Take note of a call that has just ended; None: its session is too short to leave a record."""
        key = (source.service.caller.tenant, source.session)
        self._let_go(key)
        if wanted is None:
            return
        whole = source.service.session_limits.idle_seconds
        idle = whole - min(MOST_AHEAD_SECONDS, whole * SHARE_AHEAD)
        self._number += 1
        waiting = _Waiting(self._clock() + idle, self._number, key, source, wanted, idle)
        self._waiting[key] = waiting
        self._bytes += waiting.bytes
        heapq.heappush(self._due, waiting)
        while self._bytes > MOST_BYTES:
            self._let_go(next(iter(self._waiting)))
        if self._watching is None or self._watching.done():
            self._watching = self._background.start(self._watch(), name="resting sessions")

    def __len__(self) -> int:
        return len(self._waiting)

    def _let_go(self, key: Key) -> None:
        if (waiting := self._waiting.pop(key, None)) is not None:
            self._bytes -= waiting.bytes

    async def _watch(self) -> None:
        """Until nothing waits; a text that was let go is skipped when its time comes."""
        while self._waiting:
            waiting = self._due[0]
            if (left := waiting.due_at - self._clock()) > 0 and self._waiting.get(waiting.key) is waiting:
                await asyncio.sleep(left)
                continue
            heapq.heappop(self._due)
            if self._waiting.get(waiting.key) is waiting:
                self._let_go(waiting.key)
                await self._end(waiting)
        self._due.clear()

    async def _end(self, waiting: _Waiting) -> None:
        try:
            if await self._still_idle(waiting):
                self._make(self._current(waiting.source), waiting.wanted)
        except (StoreError, ModelNotFound):
            return  # who cannot be asked whether it is needed gets no record

    async def _still_idle(self, waiting: _Waiting) -> bool:
        """Whether the session is there and nobody has used it since."""
        live = waiting.source.service.place.key("sessions")
        score, now = await asyncio.gather(
            self._store.command("ZSCORE", live, waiting.source.session, key=live), self._store.command("TIME", key=live)
        )
        if not isinstance(score, bytes | float | int):
            return False
        seconds, microseconds = cast("list[bytes]", now)
        idle = int(seconds) + int(microseconds) / 1e6 - float(score) / 1000
        return idle >= waiting.idle_seconds - SLACK_SECONDS

    def _current(self, source: Source) -> Source:
        """The same under the configuration in force by now."""
        snapshot = self._snapshot()
        if snapshot is source.snapshot:
            return source
        service = snapshot.service(source.service.caller, source.call.model)
        return replace(source, snapshot=snapshot, service=service, policy=service.summary or source.policy)
