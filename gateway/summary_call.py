"""One call to an engine for a record of older turns: the way of any other call, with nobody at its other end but us.

Rule: it reserves, waits for a replica, and is charged once, to the tenant, under the label `summary`; what it
teaches is no client's. Where a budget or an engine has no room for it, it is not made.
"""

import asyncio
from typing import Final

import msgspec

from gateway import errors
from gateway.books import Books
from gateway.call import Call
from gateway.clock import Clock
from gateway.dialects.openai_summary import Answer, answer_of
from gateway.forecast import Expected, demands
from gateway.job import Job
from gateway.measure import Measure
from gateway.passage import Opened, Passage
from gateway.responder import Responder
from gateway.routing import candidates
from gateway.service import Service
from gateway.snapshot import Snapshot

LABEL: Final = "summary"


class Failed(Exception):
    """There is no answer. `reason` is one of a few words; `engine`: the engine is to blame."""

    def __init__(self, reason: str, *, engine: bool) -> None:
        super().__init__(reason)
        self.reason = reason
        self.engine = engine


class Asked(msgspec.Struct, frozen=True):
    """A request for a record: its body, who it is charged to, where the conversation is warm and how much of it."""

    call: Call
    service: Service
    session: str
    request_id: str
    home: str | None = None
    warm_tokens: int = 0


class SummaryCall:
    """Makes such calls."""

    def __init__(self, books: Books, measure: Measure, clock: Clock) -> None:
        self._books = books
        self._measure = measure
        self._clock = clock

    async def run(self, snapshot: Snapshot, asked: Asked, seconds: float) -> Answer:
        """The engine's answer. Raises `Failed`."""
        passage = Passage(
            asked.call, asked.service, asked.request_id, self._clock(), label=LABEL, session=asked.session
        )
        try:
            opened = await self._books.open(asked.call, asked.service, {}, asked.request_id)
        except errors.Fault:
            raise Failed("budget", engine=False) from None
        kept = Kept(_Nowhere(), keep=False, http10=False)
        try:
            if opened.reached is not None:
                raise Failed("budget", engine=False)
            async with asyncio.timeout(seconds):
                await snapshot.dispatch.run(self._job(asked, opened), kept, passage.delivery)
        except TimeoutError:
            passage.delivery.outcome = "client_gone"  # the engine worked for us until we left
            raise Failed("timeout", engine=True) from None
        except asyncio.CancelledError:
            passage.delivery.outcome = "client_gone"
            raise
        except errors.EngineFault as fault:
            passage.delivery.outcome = "engine_failed"
            raise Failed("busy" if isinstance(fault, errors.EngineBusy) else "engine", engine=True) from None
        except errors.Fault:
            raise Failed("busy", engine=False) from None
        finally:
            passage.delivery.ended_at = self._clock()
            bill = passage.bill(opened.expected.prompt_tokens)
            self._measure.summarised(passage, bill)
            await asyncio.shield(self._books.close(passage, opened, bill))
        return kept.answer()

    def _job(self, asked: Asked, opened: Opened) -> Job:
        service, prompt = asked.service, opened.expected.prompt_tokens
        expected = Expected(prompt, min(asked.warm_tokens, prompt), opened.expected.decode_tokens)
        wanted = demands(service, expected, asked.session, asked.home)
        cold_seconds = wanted[0].cold_seconds
        order = candidates(service.pools, wanted, "prefill", asked.home, cold_seconds, service.first_pool)
        return Job(asked.call, service, asked.call.body, order, "prefill", (), asked.request_id, b"")


class Kept(Responder):
    """An answer that is kept instead of sent."""

    body: bytes = b""

    def reply(self, status: int, headers: object, body: bytes) -> None:
        self.started = self.finished = True
        self.status, self.body = status, body

    def answer(self) -> Answer:
        """Raises `Failed` for what is no answer: an error of the engine's, or a stream, which was not asked for."""
        if self.status >= 400:
            raise Failed("refused", engine=True)
        found = answer_of(self.body)
        if found is None:
            raise Failed("unreadable", engine=True)
        return found


class _Nowhere:
    """The connection of an answer that goes nowhere."""

    date = b""

    def send(self, data: bytes) -> None:
        """Nobody reads."""

    def answered(self, *, keep: bool) -> None:
        """Nobody waits."""

    def cut(self) -> None:
        """Nobody is there."""
