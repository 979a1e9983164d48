"""Steps 7 and 8: a lease on a replica, then its answer to the client. The one way for every call to an engine.

Rule: retries happen here only, before the first byte has gone to the client, for faults that another replica may not
have, within the attempts of one call. A lease is given back whatever happens, with what was learned of the replica.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from backends.breaker import Outcome as ReplicaOutcome
from backends.demand import Demand, Phase
from backends.engines.errors import classify, read_error
from backends.exchange import Exchange, Head, UpstreamFailed
from backends.frames import Usage
from backends.pool import Lease, NoReplica
from backends.sse import Scanner
from config.routing import Routing
from gateway import errors
from gateway.call import Call
from gateway.clock import Clock
from gateway.delivery import Delivery
from gateway.dialects.fields import edited
from gateway.metrics import Metrics
from gateway.owned import owned_fields
from gateway.pools import ServedPool
from gateway.relay import Relay, Renaming
from gateway.responder import Header, Responder
from gateway.service import Service

EVENT_STREAM: Final = b"text/event-stream"
JSON: Final = b"application/json"
BROKE_OFF: Final = "The engine broke off before the end of its answer."
RETRY_SECONDS: Final = b"1"
"""What a client is told to wait when every engine is busy: engines do not say."""


class Job(msgspec.Struct, frozen=True):
    """One call ready to be sent: its rendered body, where it may go, and what its answer's head must carry."""

    call: Call
    service: Service
    body: bytes
    candidates: Sequence[tuple[ServedPool, Demand]]
    phase: Phase
    headers: tuple[Header, ...]
    request_id: str
    trace: bytes


class _UsageOnly(msgspec.Struct):
    usage: object = None


_USAGE = msgspec.json.Decoder(_UsageOnly)


class Dispatch:
    """Sends calls to engines."""

    def __init__(self, routing: Routing, metrics: Metrics, clock: Clock) -> None:
        self._routing = routing
        self._metrics = metrics
        self._clock = clock

    async def run(self, job: Job, responder: Responder, delivery: Delivery) -> None:
        """Answer the client from an engine. Raises the fault of the last attempt when nothing was sent yet."""
        tried: frozenset[str] = frozenset()
        fault: errors.Fault = errors.NoReplica("No engine serves this model now.")
        deadline = self._clock() + self._routing.queue_timeout_seconds
        for _ in range(self._routing.attempts):
            found = await self._lease(job, tried, deadline)
            if isinstance(found, NoReplica):
                raise fault if tried else no_replica(found)
            pool, lease = found
            with lease:
                delivery.pool, delivery.replica = pool.name, lease.replica.name
                try:
                    return await self._attempt(job, pool, lease, responder, delivery)
                except errors.EngineFault as failed:
                    if not failed.retryable or responder.started:
                        raise
                    fault, tried = failed, tried | {lease.replica.name}
        raise fault

    async def _lease(self, job: Job, tried: frozenset[str], deadline: float) -> tuple[ServedPool, Lease] | NoReplica:
        """A lease on the first candidate that can take the call; a busy one is waited for before the next is asked."""
        refused: NoReplica = NoReplica("unhealthy")
        for pool, demand in job.candidates:
            found = await pool.pool.lease(demand, tried, deadline=deadline)
            if isinstance(found, Lease):
                return pool, found
            refused = found
        return refused

    async def _attempt(
        self, job: Job, pool: ServedPool, lease: Lease, responder: Responder, delivery: Delivery
    ) -> None:
        outcome: ReplicaOutcome = "failure"
        exchange: Exchange | None = None
        try:
            delivery.sent = True
            exchange = await self._sent(job, pool, lease)
            head = await exchange.head
            outcome = await self._answered(job, pool, lease, exchange, head, responder, delivery)
        except UpstreamFailed as failure:
            raise engine_fault(failure) from None
        except errors.EngineBusy:
            outcome = "neutral"
            raise
        except asyncio.CancelledError:
            outcome = "neutral"
            raise
        finally:
            if exchange is not None:
                exchange.abort()  # does nothing to one that ended
            lease.release(outcome)
            self._metrics.attempts.add(1, pool.name, lease.replica.name, outcome)

    async def _sent(self, job: Job, pool: ServedPool, lease: Lease) -> Exchange:
        fields = owned_fields(job.call, job.service.caller, job.service.model.upstream_name, pool.features)
        body = edited(job.body, fields, job.call.present)
        headers = b"x-request-id: " + job.request_id.encode() + b"\r\n" + job.trace
        return await pool.open(lease.replica.name, job.call.dialect.engine_path, headers, body)

    async def _answered(
        self,
        job: Job,
        pool: ServedPool,
        lease: Lease,
        exchange: Exchange,
        head: Head,
        responder: Responder,
        delivery: Delivery,
    ) -> ReplicaOutcome:
        if head.status >= 400:
            return await self._engine_refused(job, pool, exchange, head, responder, delivery)
        if (head.get(b"content-type") or b"").startswith(EVENT_STREAM):
            return await self._streamed(job, pool, lease, exchange, responder, delivery)
        body = await exchange.body()
        delivery.usage = usage_of(body)
        delivery.outcome = "ok"
        if renaming := renaming_of(job):
            body = body.replace(renaming.old, renaming.new, 1)
        responder.reply(head.status, [(b"content-type", head.get(b"content-type") or JSON), *job.headers], body)
        return "success"

    async def _streamed(
        self,
        job: Job,
        pool: ServedPool,
        lease: Lease,
        exchange: Exchange,
        responder: Responder,
        delivery: Delivery,
    ) -> ReplicaOutcome:
        scanner = Scanner(strip_usage=not job.call.wants_usage, choices=job.call.choices)
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]
        relay = Relay(
            responder,
            [*headers, *job.headers],
            scanner,
            clock=self._clock,
            gaps=self._metrics.itl.of(job.phase, pool.name),
            on_first=lease.first_token,
            renaming=renaming_of(job),
        )
        try:
            verdict = await relay.run(exchange)
        except asyncio.CancelledError:
            if responder.started and not responder.gone:  # the gateway stops, the client is still there
                self._break(job, scanner, responder, errors.Draining("The gateway is being stopped."))
            raise
        finally:
            delivery.usage, delivery.frames, delivery.first_at = scanner.usage, scanner.frames, relay.first_at
        if verdict == "complete":
            delivery.outcome = "ok"
            responder.finish()
            return "success"
        delivery.outcome = "broken"
        if verdict == "truncated":
            self._break(job, scanner, responder, errors.EngineBroke(BROKE_OFF))
        else:
            responder.finish()
        return "failure"

    def _break(self, job: Job, scanner: Scanner, responder: Responder, fault: errors.Fault) -> None:
        """End a stream that cannot be continued: the dialect's error event, and no normal end after it."""
        border = b"" if scanner.at_border else b"\n\n"  # only within a frame too long to be held back
        responder.write(border + job.call.dialect.error_frame(errors.answer(fault)))
        responder.finish()

    async def _engine_refused(
        self, job: Job, pool: ServedPool, exchange: Exchange, head: Head, responder: Responder, delivery: Delivery
    ) -> ReplicaOutcome:
        """An error status. What says something about the request reaches the client as it is."""
        body = await exchange.body()
        meaning = classify(pool.engine, head.status, body)
        if meaning.busy:
            retry = head.get(b"retry-after") or RETRY_SECONDS
            raise errors.EngineBusy("The engines are busy.", headers=((b"retry-after", retry),))
        if meaning.retryable:
            raise errors.EngineError("The engine failed to answer.")
        if head.status in (401, 403):
            raise errors.EngineError("The engine did not accept the gateway's own credentials.")
        delivery.outcome = "engine_refused"
        responder.reply(head.status, [(b"content-type", JSON), *job.headers], told(job, head.status, body))
        return meaning.outcome


def told(job: Job, status: int, body: bytes) -> bytes:
    """The engine's own error object as it came; every other shape in the dialect's."""
    error = read_error(status, body)
    if error.spoken and body.lstrip().startswith(b'{"error":{'):
        return body
    reply = errors.ErrorReply(status, error.type or "invalid_request_error", None, error.message, error.param)
    return job.call.dialect.error(reply)


def renaming_of(job: Job) -> Renaming | None:
    """What to rename in answers, so that the client reads the name it used."""
    upstream = job.service.model.upstream_name
    if job.call.model == upstream:
        return None
    old, new = msgspec.json.encode(upstream), msgspec.json.encode(job.call.model)
    return Renaming(b'"model":' + old, b'"model":' + new)


def usage_of(body: bytes) -> Usage | None:
    """The usage of a whole answer; `None` if it has none that can be read."""
    try:
        usage = _USAGE.decode(body).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(usage, Mapping) or not isinstance(usage.get("prompt_tokens"), int):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    completion = usage.get("completion_tokens")
    return Usage(
        usage["prompt_tokens"],
        cached if isinstance(cached, int) else None,
        completion if isinstance(completion, int) else 0,
    )


def engine_fault(failure: UpstreamFailed) -> errors.EngineFault:
    """A failed exchange as a fault."""
    if failure.reason == "timeout":
        return errors.EngineTimeout("The engine did not answer in time.")
    if failure.before_reply:
        return errors.EngineUnreachable("The engine could not be reached.")
    return errors.EngineBroke(BROKE_OFF)


def no_replica(found: NoReplica) -> errors.Fault:
    """Why there is none: saturated and timed out are capacity that is in use, the rest is capacity that is missing."""
    headers = ((b"retry-after", RETRY_SECONDS),)
    if found.reason in ("saturated", "timeout"):
        return errors.Saturated("All engines of this model are in use.", headers=headers)
    return errors.NoReplica("No engine serves this model now.", headers=headers)
