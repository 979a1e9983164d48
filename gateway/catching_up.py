"""Records of sessions that could not be written: tried again until the store has them.

Rule: writing one twice merges into the same, so whatever may have been lost is simply sent again. Memory of one
process: what still waits when it ends, or for longer than a session is remembered, is lost and counted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from gateway.clock import monotonic
from gateway.metrics import Metrics
from gateway.recalled import Left, Recollections
from gateway.store import Store, StoreError
from gateway.tasks import Tasks

PAUSE_SECONDS: Final = 0.25

Write = Callable[[Left], Awaitable[bool]]
"""Writes a record, and what belongs to it; false if its session was deleted meanwhile. Raises `StoreError`."""


class CatchingUp:
    """Writes what waits in `recollections`, in the background."""

    def __init__(
        self, store: Store, metrics: Metrics, background: Tasks, recollections: Recollections, write: Write
    ) -> None:
        self._store = store
        self._metrics = metrics
        self._background = background
        self._recollections = recollections
        self._write = write
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """There is something to write."""
        if self._task is None or self._task.done():
            self._task = self._background.start(self._run(), name="write sessions late")

    async def closed(self) -> None:
        """Try once more, if the store answers; what then still waits is lost."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await asyncio.wait([self._task])
        await self._write_all()
        self._metrics.late_sessions.add(self._recollections.unsaved, "lost")

    async def _run(self) -> None:
        while self._recollections.unsaved:
            await asyncio.sleep(PAUSE_SECONDS)
            await self._write_all()

    async def _write_all(self) -> None:
        """Until the store does not answer; those whose time is over are lost."""
        before = self._recollections.unsaved
        waiting = list(self._recollections.waiting(monotonic()))
        self._metrics.late_sessions.add(before - self._recollections.unsaved, "lost")
        for left in waiting:
            if not self._recollections.still(left):
                continue  # another turn has taken it up
            if not self._store.available:
                break
            try:
                written = await self._write(left)
            except StoreError as error:
                if error.retryable:
                    break
                self._recollections.forget(*left.key)
                self._metrics.late_sessions.add(1, "lost")
            else:
                self._metrics.late_sessions.add(1, "written" if written else "deleted")
