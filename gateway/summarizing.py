"""Step 5 of the pipeline: records of older turns, found where they are, written where they are wanted.

Rule: a record is made ahead of need, behind a call that has ended well, or in line as long as its deadline allows.
Without a record the policies decide without one: nothing here ever fails a call.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace

import msgspec

from gateway.clock import Clock
from gateway.context import Known, Planned
from gateway.dialects.openai_chat import OpenAIChat
from gateway.making import Making
from gateway.metrics import Metrics
from gateway.passage import Opened, Passage
from gateway.resting import Resting
from gateway.service import Service
from gateway.snapshot import Snapshot
from gateway.source import Source
from gateway.store import StoreError
from gateway.summaries import Remembered, Summaries
from policies.summary import Wanted


class Summarizing:
    """Finds records, and has them made. `ratio(model)`: tokens of the model's own to one of ours.

    Without `resting` no session is summarised before it is forgotten.
    """

    def __init__(
        self,
        summaries: Summaries,
        making: Making,
        metrics: Metrics,
        ratio: Callable[[str], float],
        clock: Clock,
    ) -> None:
        self.resting: Resting | None = None
        self._summaries = summaries
        self._making = making
        self._metrics = metrics
        self._ratio = ratio
        self._clock = clock
        self.remembered = Remembered()

    async def recalled(self, service: Service, known: Known) -> Known:
        """`known` with the records that its memory names."""
        policy, lane = service.summary, known.memory.enforced
        names = [named.key for named in (lane.summary, lane.ahead) if named is not None]
        if policy is None or not names:
            return known
        fresh = self._clock() - policy.keep_seconds / 4
        of = self.remembered.of
        found = {name: text for name in names if (text := of(service, known.session, name, fresh)) is not None}
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
                text = await self._making.awaited(source, wanted)
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
            summary = planned.summary
            self.remembered.used(passage.service, opened.known.session, summary.key, summary.record, self._clock())
        source = self._source(snapshot, passage, opened)
        if source is None:
            return
        # The call's own replica holds what it was sent: the question finds it there.
        source = replace(source, home=passage.delivery.replica or source.home)
        wanted, cut = planned.wanted, planned.memory.enforced.cut
        if wanted is not None and wanted.make and (cut is None or cut.at < wanted.cover.stop):
            self._making.make(source, wanted)
        if source.policy.idle_at_tokens is not None and self.resting is not None:
            self.resting.hold(source, planned.resting)

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
            opened.session.read_ms,
        )

    async def _read(self, service: Service, session: str, names: list[bytes]) -> dict[bytes, str]:
        assert service.summary is not None
        try:
            found = await self._summaries.read(service, session, names, service.summary.keep_seconds)
        except StoreError:
            return {}
        self.remembered.read(service, session, found, self._clock())
        return found

    def _is_of_facts(self, known: Known, name: bytes) -> bool:
        """Facts are found again in the messages; no store has them."""
        summary = known.memory.enforced.summary
        return summary is not None and summary.key == name and summary.room > 0
