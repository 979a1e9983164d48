"""One try at one replica: the request out, its answer to the client, what was learned of the replica.

Rule: the first byte to the client is the point of no return. Before it every failure is a fault that may be tried
elsewhere; after it the stream ends well or with the dialect's error event, never silently.
"""

import asyncio
import math
from collections.abc import Awaitable
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from backends.breaker import Outcome as ReplicaOutcome
from backends.engines.errors import classify, may_refuse
from backends.exchange import Exchange, Head, UpstreamFailed
from backends.lease import Lease
from backends.sse import Scanner
from budgets.limit import Limit
from budgets.usage import Usage
from config.pools import Features
from gateway import errors
from gateway.answers import renaming_of, said, told, usage_of
from gateway.clock import Clock, wall
from gateway.delivery import Delivery
from gateway.dialects.fields import edited
from gateway.extension import Extension
from gateway.job import Job
from gateway.markers import without_markers
from gateway.metrics import Metrics
from gateway.owned import owned_fields
from gateway.pacing import PacedResponder
from gateway.pools import ServedPool
from gateway.relay import Relay
from gateway.responder import Header, Responder

STREAM_OPTIONS: Final = "stream_options"
"""What is added to a stream whose client does not ask for its usage."""
EVENT_STREAM: Final = b"text/event-stream"
JSON: Final = b"application/json"
METADATA: Final = b"metadata"
"""What vLLM tells beside a body that is nothing but vectors in bytes: where each begins, the model, the usage."""
STREAM_HEADERS: Final[tuple[Header, ...]] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
)
BROKE_OFF: Final = "The engine broke off before the end of its answer."
RETRY_SECONDS: Final = 1.0
"""What a client is told to wait when every engine is busy and none of them says."""
REST_SECONDS: Final = 0.2
"""How long a replica that is busy is left alone when it does not say."""
LONGEST_REST_SECONDS: Final = 30.0
WAITS: Final = {"unconnected": "connect", "timeout": "first_token"}
"""What was awaited when an exchange failed by its time, before anything had gone to the client."""


class Attempt(msgspec.Struct, eq=False):
    """One try. Made, run once, thrown away."""

    _job: Job
    _pool: ServedPool
    _lease: Lease
    _responder: Responder
    _delivery: Delivery
    _metrics: Metrics
    _clock: Clock
    _added_usage: bool = False

    async def run(self) -> None:
        """Answer the client. Raises an `EngineFault` if nothing has been sent to it; the lease is given back."""
        outcome: ReplicaOutcome = "neutral"  # what is not known to be the replica's fault, a defect of ours too
        exchange: Exchange | None = None
        try:
            self._delivery.sent = True
            self._delivery.sent_at = self._clock()
            pool = self._pool
            features = pool.features_of(self._delivery.replica) if pool.refusing else pool.features
            exchange = await self._opened(features)
            outcome = await self._answered(exchange, exchange.head.result())
        except UpstreamFailed as failure:
            outcome = "failure"
            if (wait := WAITS.get(failure.reason)) is not None:
                self._metrics.timeouts.add(1, self._pool.name, wait)
            raise engine_fault(failure.with_traceback(None)) from None
        except errors.EngineError:
            outcome = "failure"
            raise
        finally:
            if exchange is not None:
                exchange.abort()  # does nothing to one that ended
            self._lease.release(outcome)
            self._metrics.attempts.add(1, self._pool.name, self._delivery.replica, outcome)

    def _opened(self, features: Features) -> Awaitable[Exchange]:
        """The call on its way."""
        job = self._job
        headers = b"x-request-id: %b\r\n%b" % (job.request_id.encode(), job.trace)
        return self._pool.open(self._delivery.replica, job.call.dialect.engine_path, headers, self._body(features))

    def _body(self, features: Features) -> bytes:
        call, service = self._job.call, self._job.service
        fields = owned_fields(call, service.caller, service.upstream_name, features, self._job.reply_tokens)
        self._added_usage = STREAM_OPTIONS in fields and STREAM_OPTIONS not in call.present
        body = edited(self._job.body, fields, call.present)
        return body if features.cache_control is not False else without_markers(body)

    async def _answered(self, exchange: Exchange, head: Head) -> ReplicaOutcome:
        kind = head.headers.get(b"content-type") or JSON
        if head.status >= 400:
            return await self._refused(exchange, head)
        if head.status >= 300:
            raise errors.EngineError("The engine sent the call elsewhere.")  # a client is not sent after it
        if head.encoded:
            raise errors.EngineError("The engine compressed its answer.")  # it was told not to
        if kind.startswith(EVENT_STREAM):
            return await self._streamed(exchange)
        if not (body := await exchange.body()):
            raise errors.EngineError("The engine answered nothing.")
        apart = head.headers.get(METADATA)
        self._delivery.usage = usage_of(body if apart is None else apart)
        if self._delivery.usage is None and self._job.call.generates:
            self._delivery.counted_tokens = self._job.service.counter.text(said(body))
        self._delivery.outcome = "ok"
        headers = ((b"content-type", kind), *self._job.headers)
        renaming = renaming_of(self._job)
        if apart is not None:
            headers = ((METADATA, renaming.apply(apart) if renaming else apart), *headers)
        elif renaming:
            body = renaming.apply(body)
        self._responder.reply(head.status, headers, body)
        return "success"

    async def _streamed(self, exchange: Exchange) -> ReplicaOutcome:
        job, delivery = self._job, self._delivery
        scanner = Scanner(strip_usage=not job.call.wants_usage, choices=job.call.choices)
        paced = None
        if job.pace is not None:
            paced = PacedResponder(self._responder, job.pace, self._clock)
            exchange.narrow()
        relay = Relay(
            paced or self._responder,
            (*STREAM_HEADERS, *job.headers),
            scanner,
            clock=self._clock,
            gaps=self._metrics.itl.of(job.phase, self._pool.name),
            on_first=self._lease.first_token,
            renaming=renaming_of(job),
            meter=job.extension,
        )
        if job.extension is not None:
            job.extension.stop = exchange.abort
        try:
            verdict = await relay.run(exchange)
            if paced is not None:
                await paced.drained()
        except asyncio.CancelledError:
            if self._responder.started and not self._responder.gone:  # the gateway stops, the client is still there
                self._break(scanner, errors.Draining("The gateway is being stopped."))
            if not (self._responder.gone and scanner.done):
                raise
            verdict = scanner.finish()  # a client that closes at `[DONE]`, as SDKs do, has had everything
        finally:
            if paced is not None:
                paced.close()
            delivery.usage, delivery.first_at = scanner.usage, relay.first_at
            delivery.counted_tokens, delivery.untold_tokens = scanner.tokens, scanner.untold
        if verdict == "complete":
            delivery.outcome = "ok"
            self._responder.finish()
            return "success"
        if verdict == "truncated" and job.extension is not None and job.extension.stopped_by is not None:
            delivery.outcome = "ok"
            self._cut_short(scanner, job.extension, job.extension.stopped_by, delivery.counted_tokens)
            return "neutral"
        delivery.outcome = "broken"
        if verdict == "truncated" and relay.stalled:
            self._metrics.timeouts.add(1, self._pool.name, "next_token" if relay.first_at else "first_token")
            self._break(scanner, errors.EngineTimeout("The engine fell silent before the end of its answer."))
        elif verdict == "truncated":
            self._break(scanner, errors.EngineBroke(BROKE_OFF))
        else:
            self._responder.finish()  # the engine's own error event has been passed on
        return "failure"

    def _cut_short(self, scanner: Scanner, extension: Extension, limit: Limit, decode_tokens: int) -> None:
        """End a stream whose budget is spent as if it had come to its `max_tokens`, with a note on the limit."""
        call, tenant = self._job.call, self._job.service.caller.tenant
        self._metrics.stopped.add(1, self._metrics.tenant(tenant), limit.label)
        unfinished = [choice for choice in range(call.choices) if choice not in scanner.finish_reasons]
        usage = Usage.estimated(extension.prompt_tokens, decode_tokens) if call.wants_usage else None
        note = {"stopped_by": limit.label, "dimension": limit.dimension}
        head = {"id": self._job.request_id, "created": int(wall()), "kvgate": note}
        border = b"" if scanner.at_border else b"\n\n"
        self._responder.write(border + call.dialect.cut_short(call, head, unfinished, usage))
        self._responder.finish()

    def _break(self, scanner: Scanner, fault: errors.Fault) -> None:
        """End a stream that cannot be continued: the dialect's error event, and no normal end after it."""
        border = b"" if scanner.at_border else b"\n\n"  # only within a frame too long to be held back
        self._responder.write(border + self._job.call.dialect.error_frame(errors.answer(fault)))
        self._responder.finish()

    async def _refused(self, exchange: Exchange, head: Head) -> ReplicaOutcome:
        """An error status. What says something about the request reaches the client as it is."""
        body = b"" if head.encoded else await exchange.body()
        if self._added_usage and may_refuse(STREAM_OPTIONS, head.status, body):
            return await self._without_usage()
        meaning = classify(self._pool.engine, head.status, body)
        told_seconds = seconds_of(head.headers.get(b"retry-after"), wall())
        if meaning.busy or (head.status == 503 and told_seconds):  # who says when to come back is not broken
            self._lease.rest(self._clock() + min(told_seconds or REST_SECONDS, LONGEST_REST_SECONDS))
            wait = b"%d" % math.ceil(told_seconds or RETRY_SECONDS)
            raise errors.EngineBusy("The engines are busy.", headers=((b"retry-after", wait),))
        if meaning.retryable:
            raise errors.EngineError("The engine failed to answer.")
        if head.status in (401, 403):
            raise errors.EngineRejected("The engine did not accept the gateway's own credentials.")
        self._delivery.outcome = "engine_refused"
        answer = told(self._job, head.status, body)
        self._responder.reply(head.status, ((b"content-type", JSON), *self._job.headers), answer)
        return meaning.outcome

    async def _without_usage(self) -> ReplicaOutcome:
        """The same call to the same replica without what we added, which the engine may have refused.

        It has if it takes the call now; then those that follow go without at once. If not, the client hears its answer
        to what the client itself wrote.
        """
        self._delivery.sent_at = self._clock()
        exchange = await self._opened(self._pool.without_usage)
        try:
            head = exchange.head.result()
            if head.status < 300:
                self._metrics.usage_refused.add(1, self._pool.name)
                self._pool.refuses_usage(self._delivery.replica)
            return await self._answered(exchange, head)
        finally:
            exchange.abort()  # does nothing to one that ended


def seconds_of(retry_after: bytes | None, now_seconds: float) -> float | None:
    """A `Retry-After` in seconds from now, be it a number or a date (RFC 9110, 10.2.3); `None` for what is neither."""
    text = (retry_after or b"").decode("latin-1")
    try:
        seconds = float(text) if text[:1].isdecimal() else parsedate_to_datetime(text).timestamp() - now_seconds
    except (ValueError, OverflowError):
        return None
    return seconds if 0 < seconds < math.inf else None


def engine_fault(failure: UpstreamFailed) -> errors.EngineFault:
    """A failed exchange as a fault."""
    if failure.reason == "timeout":
        return errors.EngineTimeout("The engine did not answer in time.")
    if failure.reason == "unconnected":
        return errors.EngineUnreachable("The engine could not be reached in time.")
    if failure.before_reply:
        return errors.EngineUnreachable("The engine could not be reached.")
    return errors.EngineBroke(BROKE_OFF)
