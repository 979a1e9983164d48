"""The step model in real time: plans a step, waits as long as the GPU would take, hands out the tokens.

Rule: a step is due a step's time after the one before it, not after the loop got round to it, so that a coarse timer
does not make the engine slow; only a backlog longer than `BACKLOG_SECONDS` (this process cannot keep up) is forgiven.
Times come from the clock and not from the loop, which may keep whole milliseconds.
"""

import asyncio
from collections.abc import Sequence

from gateway.clock import monotonic
from loadtest.engine_settings import Plant
from loadtest.meter import Meter
from loadtest.scheduler import Scheduler, Step
from loadtest.sequence import Key
from loadtest.sequence import Sequence as Work

BACKLOG_SECONDS = 0.05
STALLED_RETRY_SECONDS = 0.01
"""How soon to look again when blocks that others pin leave no room."""


Arrivals = asyncio.Queue[tuple[int, int]]
"""(choice, index of the token), in order of generation."""


class Driver:
    """Runs on the event loop that calls it, by timers alone."""

    def __init__(self, plant: Plant, speed: float, metrics: Meter) -> None:
        self._plant = plant
        self._speed = speed
        self._metrics = metrics
        self.scheduler = Scheduler(plant.limits)
        self._arrivals: dict[Key, Arrivals] = {}
        self._timer: asyncio.Handle | None = None

    @property
    def queued(self) -> int:
        """Sequences that wait or run: what an admission limit counts."""
        return len(self.scheduler.waiting) + len(self.scheduler.running)

    def submit(self, works: Sequence[Work]) -> Arrivals:
        """Let sequences wait for their turn."""
        arrivals: Arrivals = asyncio.Queue()
        for work in works:
            self._arrivals[work.key] = arrivals
            self.scheduler.add(work)
        self._wake()
        return arrivals

    def abort(self, works: Sequence[Work]) -> None:
        """Stop generating for whichever of these has not ended."""
        for work in works:
            if self._arrivals.pop(work.key, None) is not None:
                self.scheduler.abort(work.key)
                self._metrics.dropped()
        self._wake()

    def unpin(self, work: Work) -> None:
        """Free the blocks that an ended sequence kept for another engine."""
        self.scheduler.unpin(work)
        self._wake()

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _wake(self) -> None:
        if self._timer is None and not self.scheduler.idle:
            self._begin(monotonic())

    def _begin(self, start_seconds: float) -> None:
        loop, now = asyncio.get_running_loop(), monotonic()
        step = self._plan(now)
        if not step.shares:
            self._timer = loop.call_later(STALLED_RETRY_SECONDS, self._retry)
            return
        due = start_seconds + self._plant.roofline.seconds(step) / self._speed
        self._timer = loop.call_later(max(0.0, due - now), self._finish, step, due)

    def _plan(self, now_seconds: float) -> Step:
        """A step in which the last runner preempted itself is empty; the next one admits it again."""
        step = self.scheduler.begin(now_seconds)
        self._metrics.planned(step)
        if step.preempted and not step.shares:
            step = self.scheduler.begin(now_seconds)
            self._metrics.planned(step)
        return step

    def _retry(self) -> None:
        self._timer = None
        self._wake()

    def _finish(self, step: Step, due_seconds: float) -> None:
        self._timer = None
        now = monotonic()
        tokens = self.scheduler.finish(step, now)
        self._metrics.computed(step, tokens, now)
        for token in tokens:
            work = token.sequence
            arrivals = self._arrivals.pop(work.key) if work.finished else self._arrivals[work.key]
            arrivals.put_nowait((work.key.choice, token.index))
        if not self.scheduler.idle:
            self._begin(due_seconds if now - due_seconds < BACKLOG_SECONDS else now)
