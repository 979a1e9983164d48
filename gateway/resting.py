"""Sessions that nobody uses any more, summarised before they are forgotten (`expire: summarize`).

Rule: sessions are digests, so the text of a session's last call waits in the memory of the gateway that served it,
within a bound, and nowhere else. Shortly before the session's idle end its record is written, unless another gateway
has served it since, or it was deleted; the record outlives the session and is found again by what it covers. What waits
here when the gateway stops is forgotten.
"""

import asyncio
import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
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
SPARE: Final = 64
"""Times that may be left of texts that were let go, beside as many as there are texts."""
SLACK_SECONDS: Final = 0.5
"""The end of a call is written a little after it is noted here."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True)
class _Waiting:
    """The call that was held as the so manieth; `idle_seconds`: for how long its session has been idle when due."""

    number: int
    source: Source
    wanted: Wanted
    idle_seconds: float

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
        self._due: list[tuple[float, int, Key]] = []  # what is let go leaves its time behind, and no text
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
        waiting = self._waiting[key] = _Waiting(self._number, source, wanted, idle)
        self._bytes += waiting.bytes
        heapq.heappush(self._due, (self._clock() + idle, self._number, key))
        if len(self._due) > 2 * len(self._waiting) + SPARE:
            self._due = [due for due in self._due if self._waits(due)]
            heapq.heapify(self._due)
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
        """Until nothing waits; the time of a text that was let go is skipped."""
        while self._waiting:
            due_at, _, key = due = self._due[0]
            if (left := due_at - self._clock()) > 0 and self._waits(due):
                await asyncio.sleep(left)
                continue
            heapq.heappop(self._due)
            if self._waits(due):
                waiting = self._waiting[key]
                self._let_go(key)
                await self._end(waiting)
        self._due.clear()

    def _waits(self, due: tuple[float, int, Key]) -> bool:
        """Whether the call that is due then is still the latest of its session."""
        _, number, key = due
        return key in self._waiting and self._waiting[key].number == number

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
