"""Steps 7 and 8: a lease on a replica, then its answer to the client. The one way for every call to an engine.

Rule: retries happen here only, before the first byte has gone to the client, for faults that another replica may not
have, within the attempts of one call. A lease is given back whatever happens.
"""

import asyncio
import random
from typing import Final

from backends.pool import Lease, NoReplica
from config.routing import Routing
from gateway import errors
from gateway.attempt import RETRY_SECONDS, Attempt
from gateway.clock import Clock
from gateway.delivery import Delivery
from gateway.job import Job
from gateway.metrics import Metrics
from gateway.pools import ServedPool
from gateway.responder import Responder

JITTER_SECONDS: Final = 0.02
"""Calls that failed together do not come back together."""
CONTENDED: Final = ("saturated", "timeout")
"""Why there is no replica where there is capacity and others have it."""
WORKED: Final = (errors.EngineTimeout, errors.EngineError, errors.EngineBroke)
"""Faults of engines that may have computed the prompt before."""


class Dispatch:
    """Sends calls to engines."""

    def __init__(self, routing: Routing, metrics: Metrics, clock: Clock) -> None:
        self._attempts = routing.attempts
        self._queue_seconds = routing.queue_timeout_seconds
        self._metrics = metrics
        self._clock = clock

    async def run(self, job: Job, responder: Responder, delivery: Delivery) -> None:
        """Answer the client from an engine. Raises the fault of the last attempt when nothing was sent yet."""
        tried: frozenset[str] = frozenset()
        fault: errors.Fault | None = None
        deadline = self._clock() + self._queue_seconds
        try:
            for _ in range(self._attempts):
                found = _at_once(job, tried) or await self._lease(job, tried, deadline)
                if isinstance(found, NoReplica):
                    if found.reason == "timeout":
                        self._metrics.timeouts.add(1, job.candidates[0][0].name, "queue")
                    raise fault or no_replica(found)
                pool, lease = found
                left = pool.retries.earned() if fault is None else pool.retries.spent()
                if left is None:
                    lease.release("neutral")
                    break
                pool.retries = left
                delivery.pool, delivery.replica = pool.name, lease.name
                try:
                    return await Attempt(job, pool, lease, responder, delivery, self._metrics, self._clock).run()
                except errors.EngineFault as failed:
                    if isinstance(failed, WORKED) and not responder.started:
                        delivery.absorb(self._clock())
                    if not failed.retryable or responder.started:
                        raise
                    fault, tried = failed, tried | {lease.name}
                    await asyncio.sleep(random.random() * JITTER_SECONDS)
            raise fault or no_replica(NoReplica("unhealthy"))
        finally:
            fault = None  # its traceback holds this frame

    async def _lease(self, job: Job, tried: frozenset[str], deadline: float) -> tuple[ServedPool, Lease] | NoReplica:
        """A lease on the first candidate that can take the call; a busy one is waited for before the next is asked."""
        refused: NoReplica = NoReplica("unhealthy")
        for pool, demand in job.candidates:
            found = await pool.pool.lease(demand, tried, deadline=deadline)
            if isinstance(found, Lease):
                return pool, found
            if refused.reason not in CONTENDED:  # one pool that is in use counts for more than another that is away
                refused = found
        return refused


def _at_once(job: Job, tried: frozenset[str]) -> tuple[ServedPool, Lease] | None:
    """A lease on the first candidate, as nearly every call gets one; None: it is to be waited for."""
    for pool, demand in job.candidates[:1]:
        if isinstance(found := pool.pool.at_once(demand, tried), Lease):
            return pool, found
    return None


def no_replica(found: NoReplica) -> errors.Fault:
    """Why there is none: saturated and timed out are capacity that is in use, the rest is capacity that is missing."""
    headers = ((b"retry-after", b"%d" % RETRY_SECONDS),)
    if found.reason == "timeout":
        return errors.Saturated("No engine of this model had room in the time that a call may wait.", headers=headers)
    if found.reason in CONTENDED:
        return errors.Saturated("All engines of this model are in use.", headers=headers)
    return errors.NoReplica("No engine serves this model now.", headers=headers)
