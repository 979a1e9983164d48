"""One way through the house: a request comes in at the top and leaves at the bottom, in nine steps.

Rule: each step is one call and never returns to an earlier one. Who calls is asked before the body is read
(docs/adr/0002). What goes wrong is a `Fault`, answered in one place; step 9 runs whatever happened, after the last
byte, and delays no answer.
"""

import asyncio
from functools import partial
from typing import Final

import msgspec

from gateway import artifacts, errors, trace
from gateway.books import Books
from gateway.call import Outcome, Request
from gateway.clock import Clock, wall
from gateway.context import Context, Planned
from gateway.credential import Credential
from gateway.dialects.base import Dialect
from gateway.dry_run import DryRun
from gateway.errors import Fault
from gateway.forecast import Expected, Forecast, demands
from gateway.identity import named
from gateway.job import Job
from gateway.measure import Measure
from gateway.passage import Opened, Passage
from gateway.prefixes import prefix_of
from gateway.reports import APPLIED_EDITS, answer_headers, applied_edits, asks
from gateway.responder import Header, Responder
from gateway.retrieval import announced
from gateway.routing import candidates
from gateway.snapshot import Snapshot
from gateway.stored import HEADER, Stored, recorded
from gateway.summarizing import Summarizing

SESSION: Final = b"x-session-id"
JSON: Final[Header] = (b"content-type", b"application/json")


class Pipeline:
    """The nine steps."""

    def __init__(
        self,
        context: Context,
        books: Books,
        stored: Stored,
        forecast: Forecast,
        measure: Measure,
        clock: Clock,
        summarizing: Summarizing,
    ) -> None:
        self._summarizing = summarizing
        self._context = context
        self._books = books
        self._stored = stored
        self._forecast = forecast
        self._dry_run = DryRun(forecast)
        self._measure = measure
        self._clock = clock

    async def serve(
        self, snapshot: Snapshot, dialect: Dialect, request: Request, request_id: str, responder: Responder
    ) -> None:
        """Answer one request that costs an engine. Raises the `Fault` that ended it before its first byte."""
        started_at = self._clock()
        caller = snapshot.tenants.caller(request.credential or Credential.of(request.headers))  # 2 who
        call = dialect.parse(request.body)  # 1 parse
        service = snapshot.service(caller, call.model)
        if service.announces:
            call = announced(call)
        passage = Passage(call, service, request_id, started_at)
        try:
            if HEADER in request.headers:
                passage.call, passage.turn = await self._stored.begin(call, service, request.headers)
            opened = await self._books.open(passage.call, service, request.headers, request_id)  # 3 open
        except BaseException as ended:
            self._measure.ended(passage, outcome_of(ended), None)
            if passage.turn is not None:
                await self._stored.abandon(passage.turn)
            raise
        if opened.reached is not None:
            passage.service = opened.reached.stage.service
        passage.extension = self._books.extension(passage.call, passage.service, opened)
        try:
            await self._through(snapshot, passage, opened, request, responder)
        except Fault as fault:
            passage.delivery.outcome = outcome_of(fault)
            if opened.reached is not None:
                fault.headers = (*fault.headers, opened.reached.header)
            raise
        except asyncio.CancelledError:
            passage.delivery.outcome = left(responder)
            if not responder.gone and not responder.started:
                raise errors.Draining("The gateway is being stopped.") from None
        finally:
            responder.on_gone = None
            delivery = passage.delivery
            delivery.ended_at = self._clock()
            delivery.network_bytes = len(request.body) + responder.sent_bytes
            bill = passage.bill(opened.expected.prompt_tokens)
            self._measure.ended(passage, delivery.outcome, bill)
            if passage.turn is not None:
                self._stored.end(passage.turn, delivery.outcome)
            await self._books.close(passage, opened, bill)  # 9 close
            if passage.turn is not None:
                await self._stored.ended(passage.turn)

    async def statement(self, snapshot: Snapshot, request: Request) -> bytes:
        """How the caller's own limits stand; costs no engine. Raises `NotAuthenticated` or `StoreDown`."""
        caller, session = snapshot.tenants.identify(request.headers), request.headers.get(SESSION, b"")
        return await self._books.statements.of(caller, named(session.decode("latin-1").strip()))

    async def forget(self, snapshot: Snapshot, request: Request, session: str) -> None:
        """Delete a session of the caller's. Raises `NotAuthenticated`, `SessionNotFound` or `StoreDown`."""
        await self._books.forget(snapshot.tenants.identify(request.headers), session)

    async def history(self, snapshot: Snapshot, request: Request, session: str) -> bytes:
        """What is stored of a session of the caller's. Raises `NotAuthenticated`, or what says why there is nothing."""
        return await self._stored.read(snapshot.tenants.identify(request.headers), session)

    async def artifact(self, snapshot: Snapshot, request: Request, written: str) -> bytes:
        """An original of the caller's tenant. Raises `NotAuthenticated`, `ArtifactNotFound` or `StoreDown`."""
        caller = snapshot.tenants.identify(request.headers)
        handle, parameters = artifacts.handle_of(written), artifacts.asked(request.query)
        return artifacts.body(handle, await self._books.original(caller, handle), parameters, wall())

    async def _through(
        self, snapshot: Snapshot, passage: Passage, opened: Opened, request: Request, responder: Responder
    ) -> None:
        cancel_when_gone(responder)
        call, service = passage.call, passage.service
        summarizes = service.summary is not None
        if summarizes:
            known = await self._summarizing.recalled(service, opened.known)
            opened = msgspec.structs.replace(opened, known=known)
        if DryRun.asked(request.headers):
            answer = await self._dry_run.answer(passage, opened)
            passage.delivery.outcome = "dry_run"
            responder.reply(200, (JSON, *self._headers(passage, opened, request)), answer)
            return
        if passage.turn is not None:
            recorded(passage.turn, opened.session, responder)
        write = partial(self._summarizing.write, snapshot, passage, opened) if summarizes else None
        planned = await self._context.plan(call, service, opened.known, write)  # 4 plan, 5 fulfil
        passage.planned = planned
        if planned.counted and planned.sent_tokens > opened.expected.prompt_tokens:
            self._books.grown(passage, opened, planned.sent_tokens)
        body = call.dialect.render(call, planned.edits)  # 6 render
        job = self._job(snapshot, passage, opened, planned, body, request)  # 7 choose
        await snapshot.dispatch.run(job, responder, passage.delivery)  # 8 relay
        if summarizes and passage.delivery.outcome == "ok":
            self._summarizing.ended(snapshot, passage, opened, planned)

    def _job(
        self, snapshot: Snapshot, passage: Passage, opened: Opened, planned: Planned, body: bytes, request: Request
    ) -> Job:
        """The call with the pools that may take it, in order of preference."""
        service, home = passage.service, opened.session.home
        expected = self._expected(passage, opened, planned)
        passage.prefix = prefix_of(planned, opened.session, expected.cached_tokens)
        wanted = demands(service, expected, opened.session.id, home)
        cold_seconds = wanted[0].cold_seconds
        heavy = cold_seconds > snapshot.prefill_heavy_above * wanted[0].decode_seconds
        passage.phase = "prefill" if heavy else "decode"
        order = candidates(service.pools, wanted, passage.phase, home, cold_seconds, service.first_pool)
        return Job(
            passage.call,
            service,
            body,
            order,
            passage.phase,
            self._headers(passage, opened, request),
            passage.request_id,
            trace.carried(request.headers),
            passage.extension,
            planned.reply_tokens,
            None if opened.reached is None else opened.reached.stage.pace,
        )

    def _headers(self, passage: Passage, opened: Opened, request: Request) -> tuple[Header, ...]:
        """Ours on the answer; those that only some calls have stand last."""
        planned = passage.planned
        assert planned is not None
        ietf = passage.service.caller.may.ietf_headers
        headers = answer_headers(passage.request_id, planned, opened.grant, opened.reached, ietf=ietf)
        if passage.turn is not None:
            headers = (*headers, passage.turn.header)
        if APPLIED_EDITS in request.headers and asks(request.headers[APPLIED_EDITS]):
            headers = (*headers, applied_edits(planned))
        return headers

    def _expected(self, passage: Passage, opened: Opened, planned: Planned) -> Expected:
        decode = opened.expected.decode_tokens
        if planned.counted:
            return Expected(planned.sent_tokens, planned.cached_tokens, decode)
        prompt, known = opened.expected.prompt_tokens, opened.session.known_messages
        cached = self._forecast.known_tokens(passage.call, passage.service, known) if known else 0
        return Expected(prompt, cached if cached < prompt else prompt, decode)


def cancel_when_gone(responder: Responder) -> None:
    """From here on a client that leaves ends the work for it. Raises `ClientGone` if it has left already."""
    if responder.gone:
        raise errors.ClientGone("The client closed the connection.")
    responder.on_gone = responder.cancel


def left(responder: Responder) -> Outcome:
    """Why a call was cancelled: the client left, it did not read, or the gateway stops."""
    if not responder.gone:
        return "broken"
    return "client_slow" if responder.slow else "client_gone"


def outcome_of(ended: BaseException) -> Outcome:
    """How a call that ended in a fault is counted."""
    match ended:
        case errors.ClientGone():
            return "client_gone"
        case errors.RateLimited() | errors.QuotaSpent():
            return "denied"
        case errors.ClientFault():
            return "refused"
        case errors.EngineFault():
            return "engine_failed"
        case _:
            return "failed"
