"""Settlements that the store has not heard of: kept while it is away, written when it answers again.

Rule: settling is idempotent, so whatever may have been lost is simply sent again. Memory of one process: what still
waits when the process ends, and what is beyond `KEPT`, is lost, and counted where that can be.
"""

import asyncio
from collections import deque
from typing import Final

from budgets.script import Step
from gateway.metrics import Metrics
from gateway.store import Store, StoreError
from gateway.tasks import Tasks

WRITE_SECONDS: Final = 2.0
"""How long a settlement waits for the store: it delays no answer, and a charge that is late is better than one lost."""
KEPT: Final = 10_000
AT_ONCE: Final = 64
PAUSE_SECONDS: Final = 0.25


class Backlog:
    """What has to be written yet, the oldest first."""

    def __init__(self, store: Store, metrics: Metrics, background: Tasks) -> None:
        self._store = store
        self._metrics = metrics
        self._background = background
        self._waiting: deque[Step[bool]] = deque()
        self._sent = 0  # and not answered yet
        self._writing: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._waiting) + self._sent

    def add(self, settling: Step[bool]) -> None:
        """Write this as soon as may be. A full backlog drops its oldest."""
        if len(self._waiting) >= KEPT:
            self._waiting.popleft()
            self._metrics.late.add(1, "lost")
        self._waiting.append(settling)
        if self._writing is None or self._writing.done():
            self._writing = self._background.start(self._write_all(), name="write the backlog")

    async def closed(self) -> None:
        """Try once more, if the store answers; what then still waits is lost."""
        if self._writing is not None and not self._writing.done():
            self._writing.cancel()
            await asyncio.wait([self._writing])  # it puts back what it had sent and heard nothing of
        while self._waiting and self._store.available and await self._write_some():
            pass
        self._metrics.late.add(len(self._waiting), "lost")

    async def _write_all(self) -> None:
        while self._waiting:
            if not (self._store.available and await self._write_some()):
                await asyncio.sleep(PAUSE_SECONDS)

    async def _write_some(self) -> bool:
        """Whether the store answered each; what it did not answer waits on, in its place."""
        steps = [self._waiting.popleft() for _ in range(min(AT_ONCE, len(self._waiting)))]
        unsent, self._sent = list(steps), len(steps)
        try:
            answers = await asyncio.gather(*map(self._written, steps))
            unsent = [step for step, written in zip(steps, answers, strict=True) if not written]
        finally:
            self._sent = 0
            self._waiting.extendleft(reversed(unsent))
        return not unsent

    async def _written(self, step: Step[bool]) -> bool:
        try:
            charged = await self._store.ask(step, WRITE_SECONDS)
        except StoreError as error:
            if not error.retryable:
                self._metrics.late.add(1, "lost")
            return not error.retryable
        self._metrics.late.add(1, "written" if charged else "known")
        return True
