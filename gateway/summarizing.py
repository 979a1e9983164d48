"""Step 5 of the pipeline: records of older turns, found where they are, written where they are wanted.

Rule: a record is made ahead of need, behind a call that has ended well, or in line as long as its deadline allows; once
for all gateways. A writer that fails is left alone for a time. Without a record the policies decide without one:
nothing here ever fails a call.
"""

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

import msgspec

from backends.breaker import CLOSED, Breaker, BreakerSettings, Outcome, probe
from backends.breaker import record as recorded
from gateway.clock import Clock
from gateway.context import Known, Planned
from gateway.dialects import openai_summary
from gateway.dialects.openai_chat import OpenAIChat
from gateway.metrics import Metrics
from gateway.passage import Opened, Passage
from gateway.resting import Resting
from gateway.service import Service
from gateway.snapshot import Snapshot
from gateway.source import Source
from gateway.store import StoreError
from gateway.summaries import Remembered, Right, Summaries
from gateway.summary_call import Asked, Failed, SummaryCall
from gateway.tasks import Tasks
from policies import record
from policies.conversation import Conversation, Message
from policies.edit import apply
from policies.summary import Wanted

BREAKER: Final = BreakerSettings(consecutive_failures=3, open_seconds=30.0, open_cap_seconds=1_800.0)
MOST_AT_ONCE: Final = 32
"""Records in the making in one process; more are made another time."""
SPARE_SECONDS: Final = 10.0
"""So much longer than a call may take its right to make the record lasts."""
POLL_SECONDS: Final = 0.1
FRAME_TOKENS: Final = 64
CHARACTERS_A_TOKEN: Final = 3


class Summarizing:
    """Finds and makes records. `ratio(model)`: tokens of the model's own to one of ours.

    Without `resting` no session is summarised before it is forgotten.
    """

    def __init__(
        self,
        summaries: Summaries,
        calls: SummaryCall,
        metrics: Metrics,
        ratio: Callable[[str], float],
        background: Tasks,
        clock: Clock,
    ) -> None:
        self.resting: Resting | None = None
        self._summaries = summaries
        self._calls = calls
        self._metrics = metrics
        self._ratio = ratio
        self._background = background
        self._clock = clock
        self._remembered = Remembered()
        self._breakers: dict[tuple[str, str], Breaker] = {}
        self._making: dict[tuple[str, str, bytes], asyncio.Task[str | None]] = {}

    async def recalled(self, service: Service, known: Known) -> Known:
        """`known` with the records that its memory names."""
        policy, lane = service.summary, known.memory.enforced
        names = [named.key for named in (lane.summary, lane.ahead) if named is not None]
        if policy is None or not names:
            return known
        fresh = self._clock() - policy.keep_seconds / 4
        found = {name: text for name in names if (text := self._remembered.of(name, fresh)) is not None}
        if missing := [name for name in names if name not in found and not self._is_of_facts(known, name)]:
            found |= await self._read(service, known.session, missing)
        return msgspec.structs.replace(known, records=found) if found else known

    async def write(self, snapshot: Snapshot, passage: Passage, opened: Opened, wanted: Wanted) -> Mapping[bytes, str]:
        """The record that is wanted, or one as good, if it is there or comes in time; nothing otherwise."""
        source = self._source(snapshot, passage, opened)
        if source is None:
            return {}
        ahead = opened.known.memory.enforced.ahead
        names = [name for name in (wanted.key, *wanted.others) if ahead is None or name != ahead.key]
        found = await self._read(source.service, source.session, names) if names else {}
        found = {name: text for name, text in found.items() if name not in opened.known.records}
        if found or not (wanted.make and wanted.urgent and source.policy.deadline_seconds):
            return found
        try:
            async with asyncio.timeout(source.policy.deadline_seconds):
                text = await self._awaited(source, wanted)
        except TimeoutError:
            self._metrics.summaries_failed.add(1, "deadline")
            return {}
        return {} if text is None else {wanted.key: text}

    def ended(self, snapshot: Snapshot, passage: Passage, opened: Opened, planned: Planned) -> None:
        """A call has ended well: note what it used, and write ahead what its plan asked for."""
        if planned.summary is not None:
            before = opened.known.memory.enforced.summary
            if before is None or before.key != planned.summary.key:
                self._metrics.summaries.add(1, "used")
            self._remembered.add({planned.summary.key: planned.summary.record}, self._clock())
        source = self._source(snapshot, passage, opened)
        if source is None:
            return
        # The call's own replica holds what it was sent: the question finds it there.
        source = replace(source, home=passage.delivery.replica or source.home)
        wanted, cut = planned.wanted, planned.memory.enforced.cut
        if wanted is not None and wanted.make and (cut is None or cut.at < wanted.cover.stop):
            self.make(source, wanted)
        if source.policy.idle_at_tokens is not None and self.resting is not None:
            self.resting.hold(source, planned.resting)

    def make(self, source: Source, wanted: Wanted) -> "asyncio.Task[str | None] | None":
        """Write a record in the background, once; None where too many are being written, or its writer rests."""
        key = (*source.service.key, wanted.key)
        if (running := self._making.get(key)) is not None:
            return running
        if len(self._making) >= MOST_AT_ONCE or not self._admits(source):
            self._metrics.summaries_failed.add(1, "resting" if len(self._making) < MOST_AT_ONCE else "busy")
            return None
        task = self._background.start(self._made(source, wanted), name="summary")
        self._making[key] = task
        task.add_done_callback(lambda _: self._making.pop(key, None))
        return task

    async def _awaited(self, source: Source, wanted: Wanted) -> str | None:
        """The record once it is written, here or by another gateway; the writing goes on if nobody waits any more."""
        while (task := self.make(source, wanted)) is not None:
            if (text := await asyncio.shield(task)) is not None:
                return text
            if self._failed_last(source):
                return None
            await asyncio.sleep(POLL_SECONDS)
            if found := await self._read(source.service, source.session, [wanted.key]):
                return found[wanted.key]
        return None

    async def _made(self, source: Source, wanted: Wanted) -> str | None:
        """The record, written and kept; None if another gateway is at it, or if it came to nothing."""
        policy = source.policy
        try:
            lease = policy.timeout_seconds + SPARE_SECONDS
            right = await self._summaries.take(source.service, source.session, wanted.key, lease)
        except StoreError:
            return None
        if not isinstance(right, Right):
            return right
        try:
            text = await self._written(source, wanted)
            if text is not None and not await self._summaries.put(right, text, policy.keep_seconds):
                self._metrics.summaries_failed.add(1, "deleted")
                return None
            if text is None:
                await self._summaries.give_back(right)
        except StoreError:
            self._metrics.summaries_failed.add(1, "store")
            return None
        if text is not None:
            self._metrics.summaries.add(1, "made")
        return text

    async def _written(self, source: Source, wanted: Wanted) -> str | None:
        """What the writer wrote, if it can be used."""
        key, probed = self._key(source), self._probing(source)
        try:
            asked = self._asked(source, wanted)
            answer = await self._calls.run(source.snapshot, asked, source.policy.timeout_seconds)
            text = self._accepted(source, wanted, answer)
        except Failed as failed:
            self._metrics.summaries_failed.add(1, failed.reason)
            self._judge(key, "failure" if failed.engine else "neutral", probed=probed)
            return None
        self._judge(key, "success", probed=probed)
        return text

    def _judge(self, key: tuple[str, str], outcome: Outcome, *, probed: bool) -> None:
        breaker = self._breakers.get(key, CLOSED)
        self._breakers[key] = recorded(breaker, outcome, self._clock(), BREAKER, probed=probed)

    def _accepted(self, source: Source, wanted: Wanted, answer: openai_summary.Answer) -> str:
        """The record in an answer, with what the record before held and this one lost. Raises `Failed`."""
        if answer.called:
            raise Failed("called", engine=True)
        if answer.refused:
            raise Failed("refusal", engine=True)
        if answer.finish == "length":
            raise Failed("cut_off", engine=True)
        if not answer.text.strip():
            raise Failed("empty", engine=True)
        text = record.read(answer.text)
        if text is None:
            raise Failed("unstructured", engine=True)
        most = source.policy.max_tokens
        if (tokens := self._tokens(source, text)) > most:
            raise Failed("too_long", engine=True)
        if tokens + FRAME_TOKENS >= wanted.replaced_tokens:
            raise Failed("no_gain", engine=False)
        before = source.records.get(wanted.before, "")
        room = (most - tokens) * CHARACTERS_A_TOKEN
        while before and room > 0:
            longer = record.carried(text, before, room)
            if self._tokens(source, longer) <= most:
                return longer
            room = room * 2 // 3
        return text

    def _asked(self, source: Source, wanted: Wanted) -> Asked:
        """The request: behind the conversation where its own model writes, else with a transcript."""
        policy, dialect = source.policy, source.call.dialect
        most = source.policy.max_tokens
        if policy.model is None and policy.pool is None:
            service = source.service
            body = openai_summary.asked_behind(source.call, wanted, most)
            home, warm = source.home, sum(map(len, source.call.messages[: wanted.cover.stop])) // 4
        else:
            service = source.snapshot.writer(source.service, policy)
            if not service.pools:
                raise Failed("no_pool", engine=False)
            limit = service.context_limit_tokens or 8_192
            room = max(1_000, (limit - 2 * most) * CHARACTERS_A_TOKEN)
            body = openai_summary.asked_apart(service.model.name, self._messages(source, wanted), most, room)
            home, warm = None, 0
        call = msgspec.structs.replace(dialect.parse(body), messages=())
        return Asked(call, service, source.session, f"{source.request_id}-{secrets.token_hex(4)}", home, warm)

    def _messages(self, source: Source, wanted: Wanted) -> tuple[Message, ...]:
        """What is to be recorded, as it was sent."""
        stop = wanted.cover.stop
        messages = source.call.dialect.messages(source.call, source.digests)[:stop]
        return apply(Conversation(messages), wanted.edits).messages

    def _source(self, snapshot: Snapshot, passage: Passage, opened: Opened) -> Source | None:
        """None where no record can be made: no session, none read, or another wire format."""
        service = passage.service
        if (
            service.summary is None
            or opened.session.status == "unread"
            or not isinstance(passage.call.dialect, OpenAIChat)
        ):
            return None
        return Source(
            snapshot,
            passage.call,
            opened.known.digests,
            service,
            service.summary,
            opened.known.session,
            opened.session.home,
            passage.request_id,
            self._ratio(service.model.name),
            opened.known.records,
        )

    async def _read(self, service: Service, session: str, names: list[bytes]) -> dict[bytes, str]:
        assert service.summary is not None
        try:
            found = await self._summaries.read(service, session, names, service.summary.keep_seconds)
        except StoreError:
            return {}
        self._remembered.add(found, self._clock())
        return found

    def _is_of_facts(self, known: Known, name: bytes) -> bool:
        """Facts are found again in the messages; no store has them."""
        summary = known.memory.enforced.summary
        return summary is not None and summary.key == name and summary.room > 0

    def _tokens(self, source: Source, text: str) -> int:
        return math.ceil(source.service.counter.text(text) * source.scale)

    def _key(self, source: Source) -> tuple[str, str]:
        return source.policy.model or source.service.model.name, source.policy.pool or ""

    def _admits(self, source: Source) -> bool:
        return self._breakers.get(self._key(source), CLOSED).admits(self._clock())

    def _probing(self, source: Source) -> bool:
        """Whether this is the one call that a resting writer is tried with."""
        key = self._key(source)
        breaker = self._breakers.get(key, CLOSED)
        if breaker.state(self._clock()) != "half_open":
            return False
        self._breakers[key] = probe(breaker)
        return True

    def _failed_last(self, source: Source) -> bool:
        return self._breakers.get(self._key(source), CLOSED).consecutive > 0 or not self._admits(source)
