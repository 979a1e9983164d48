"""Records of older turns in the making: one for all gateways, in the background, by a writer that answers.

Rule: whoever has the right to make a record makes it; the right is given back if it was not made. A writer that fails
is left alone for a time, and nothing here ever fails a call.
"""

import asyncio
from typing import Final

from backends.breaker import Outcome
from gateway.clock import Clock
from gateway.metrics import Metrics
from gateway.source import Source
from gateway.store import StoreError
from gateway.summaries import Right, Summaries
from gateway.summary_call import Failed, SummaryCall
from gateway.summary_request import accepted, asked_of
from gateway.tasks import Tasks
from gateway.writers import Writers
from policies.summary import Wanted

MOST_AT_ONCE: Final = 32
"""Records in the making in one process; more are made another time."""
SPARE_SECONDS: Final = 10.0
"""So much longer than a call may take its right to make the record lasts."""
POLL_SECONDS: Final = 0.1
ELSEWHERE: Final = ""


class Making:
    """Makes records."""

    def __init__(self, summaries: Summaries, calls: SummaryCall, metrics: Metrics, tasks: Tasks, clock: Clock) -> None:
        self._summaries = summaries
        self._calls = calls
        self._metrics = metrics
        self._tasks = tasks
        self._clock = clock
        self._writers = Writers()
        self._running: dict[tuple[str, str, bytes], asyncio.Task[str | None]] = {}

    def make(self, source: Source, wanted: Wanted) -> "asyncio.Task[str | None] | None":
        """Write a record in the background, once; None where too many are being written, or its writer rests.

        The task gives the record, `ELSEWHERE` while another gateway writes it, or None for nothing.
        """
        key = (source.service.caller.tenant, source.session, wanted.key)
        if (running := self._running.get(key)) is not None:
            return running
        if len(self._running) >= MOST_AT_ONCE or not self._writers.admits(source, self._clock()):
            self._metrics.summaries_failed.add(1, "busy" if len(self._running) >= MOST_AT_ONCE else "resting")
            return None
        task = self._running[key] = self._tasks.start(self._made(source, wanted), name="summary")
        task.add_done_callback(lambda _: self._running.pop(key, None))
        return task

    async def awaited(self, source: Source, wanted: Wanted) -> str | None:
        """The record once it is written, here or by another gateway; the writing goes on if nobody waits any more."""
        while (task := self.make(source, wanted)) is not None:
            await asyncio.wait({task})
            if task.cancelled() or task.exception() is not None:
                return None
            if (text := task.result()) != ELSEWHERE:
                return text
            await asyncio.sleep(POLL_SECONDS)
        return None

    async def _made(self, source: Source, wanted: Wanted) -> str | None:
        try:
            lease = source.policy.timeout_seconds + SPARE_SECONDS
            right = await self._summaries.take(source.service, source.session, wanted.key, lease, source.read_ms)
            if right is None:
                return ELSEWHERE
            if right is False:
                self._metrics.summaries_failed.add(1, "deleted")
                return None
            return await self._with_right(right, source, wanted) if isinstance(right, Right) else right
        except StoreError:
            self._metrics.summaries_failed.add(1, "store")
            return None

    async def _with_right(self, right: Right, source: Source, wanted: Wanted) -> str | None:
        """The record, written and kept. Raises `StoreError`."""
        text = None
        try:
            text = await self._written(source, wanted)
        finally:
            if text is None:
                await asyncio.shield(self._summaries.give_back(right))
        if text is None:
            return None
        if not await self._summaries.put(right, text, source.policy.keep_seconds):
            self._metrics.summaries_failed.add(1, "deleted")
            return None
        self._metrics.summaries.add(1, "made")
        return text

    async def _written(self, source: Source, wanted: Wanted) -> str | None:
        """What the writer wrote, if it can be used."""
        probed = self._writers.probes(source, self._clock())
        outcome: Outcome = "neutral"
        try:
            asked = asked_of(source, wanted)
            answer = await self._calls.run(source.snapshot, asked, source.policy.timeout_seconds)
            text = accepted(source, wanted, answer)
            outcome = "success"
        except Failed as failed:
            self._metrics.summaries_failed.add(1, failed.reason)
            outcome = "failure" if failed.engine else "neutral"
            return None
        finally:
            self._writers.judge(source, outcome, self._clock(), probed=probed)
        return text
