"""Steps 3 and 9: the session and the budget, opened together and closed together, one script each.

Rule: what step 3 took, step 9 gives back or charges, whatever happened between. A store that is away is not an outage:
the session is then neither read nor written, and each limit says what happens to the budget.
"""

from collections.abc import Mapping

from msgspec import structs

from budgets import ledger
from budgets.fullness import fullness
from budgets.ledger import Amounts, Denied
from budgets.script import Step, both
from budgets.usage import Usage
from gateway import artifacts, digests, sessions
from gateway.backlog import WRITE_SECONDS, Backlog
from gateway.call import Call
from gateway.catching_up import CatchingUp
from gateway.clock import monotonic
from gateway.context import Known
from gateway.degrading import NO_STAGES, reached
from gateway.denials import fault_of
from gateway.dialects.roles import role_of
from gateway.errors import StoreDown
from gateway.extension import Extension
from gateway.forecast import Forecast
from gateway.forgetting import Forgetting
from gateway.lineage import recognised, session_id
from gateway.memories import Memories
from gateway.metrics import Metrics
from gateway.noting import Noting
from gateway.opening import NO_SESSION, Opening
from gateway.originals import Original, Originals, checked
from gateway.outstanding import Outstanding
from gateway.passage import CLIENT, Bill, Opened, Passage
from gateway.prefixes import is_cold
from gateway.prices import pricing
from gateway.recalled import Left, Recollections
from gateway.recording import entry_of
from gateway.service import Service
from gateway.sessions import Progress, Saved, Session, SessionLimits, Sessions
from gateway.statements import RETRY, Statements
from gateway.store import Store, StoreError
from gateway.summaries import Summaries
from gateway.tasks import Tasks
from gateway.tenants import Caller
from gateway.texts import Place, Texts
from gateway.vault import Vault
from policies.keeping import NOTHING
from policies.memory import EMPTY, Memory


class Books:
    """Opens and closes the accounts of calls."""

    def __init__(
        self, store: Store, metrics: Metrics, forecast: Forecast, background: Tasks, vault: Vault | None = None
    ) -> None:
        self._store = store
        vault = vault or Vault()
        self._noting = Noting(metrics)
        self._memories = Memories(vault, self._noting.unopened)
        self.statements = Statements(store)
        self.originals = Originals(store, vault, metrics)
        self.summaries = Summaries(store, vault, metrics)
        self._metrics = metrics
        self._forecast = forecast
        self.outstanding = Outstanding()
        self._backlog = Backlog(store, metrics, background)
        self._opening = Opening(store, self._backlog)
        self.recollections = Recollections()
        self._catching_up = CatchingUp(store, metrics, background, self.recollections, self._write_late)
        self._forgetting = Forgetting(
            Sessions(store), Texts(store, metrics), self.originals, self.summaries, self.recollections
        )
        self.forget = self._forgetting.session

    async def open(self, call: Call, service: Service, headers: Mapping[bytes, bytes], request_id: str) -> Opened:
        """The session and a grant, which bears the id of the request.

        Raises `RateLimited`, `QuotaSpent`, `ModelUnpriced`, and `StoreDown` where nothing passes unchecked.
        """
        if service.unpriced is not None:
            self._noting.unpriced(service, service.unpriced)
        sent = digests.of_messages(call.messages)
        names = recognised(call.messages, sent, service.strip)
        chain = digests.Chain(names)
        expected, amounts, ceiling = self._forecast.asked(call, service)
        tenant = service.caller.tenant
        id = session_id(call, headers, service.key, names, service.identity) if names else ""
        loading = sessions.loading(tenant, id, chain, service.caller.may.organisation) if names else None
        if loading is not None and service.keep_seconds:
            loading = checked(loading, service.place, id)
        scope = service.scope_of(id)
        session, found, lost = await self._opening.opened(loading, scope, amounts, ceiling, request_id)
        if session.status == "part":
            whole = await self._opening.read_on(sessions.loading_whole(session, chain), found)
            session = structs.replace(whole, originals=session.originals)
        if session is NO_SESSION and id:
            organisation = service.caller.may.organisation
            session = Session(tenant, id, "unread", organisation=organisation, unread_at=monotonic())
        memory = self._memories.of(session) if session.memory else EMPTY
        recalled = None
        if id and (session.status == "unread" or self.recollections.unsaved):
            recalled = self.recollections.of(session, chain, memory, monotonic())
        if recalled is not None:
            session, memory = recalled.session, recalled.memory
        self._metrics.sessions.add(1, session.status)
        passed = reached(service.stages, fullness(found, service.lowest_stage)) if service.stages else NO_STAGES
        if passed.holds is not None and isinstance(found, Denied) and not found.local:
            expected, less, least = self._forecast.asked(call, passed.holds.stage.service)
            if (less, least) != (amounts, ceiling):
                self._opening.undo(lost)
                # The id of what was lost is taken.
                _, found, lost = await self._opening.opened(None, scope, less, least, "")
        if isinstance(found, Denied):
            self._opening.undo(lost)
            self._noting.denied(found)
            raise fault_of(found, passed.holds, ietf=service.caller.may.ietf_headers)
        self.outstanding.opened(found)
        self._noting.granted(found, passed)
        sent_before = 0 if memory is None else session.known_messages if recalled is None else recalled.messages
        prices = pricing(service, session, self._forecast, expected.decode_tokens // (call.sequences or 1))
        keeping = service.keeping if session.status != "unread" else NOTHING
        cold = bool(sent_before) and memory is not EMPTY and is_cold(session, service.pools, headers)
        known = Known(
            sent,
            sent_before,
            memory or EMPTY,
            session.idle_seconds,
            prices,
            id,
            keeping,
            session.originals,
            cold=cold,
            read_ms=session.read_ms,
        )
        unsaved = None if recalled is None else recalled.unsaved
        return Opened(session, known, chain, found, expected, passed.holds, unsaved)

    def extension(self, call: Call, service: Service, opened: Opened) -> Extension | None:
        """What asks for more while a stream goes on; None if no limit would be asked."""
        if not (call.stream and service.grows) or opened.grant.local:
            return None
        return Extension(self._store, opened.grant, service, opened.expected, call, self.outstanding)

    def grown(self, passage: Passage, opened: Opened, prompt_tokens: int) -> None:
        """Reserve what a counted prompt has more than was expected."""
        if passage.extension is None and passage.service.elastic and not opened.grant.local:
            grant, service, call = opened.grant, passage.service, passage.call
            passage.extension = Extension(self._store, grant, service, opened.expected, call, self.outstanding)
        if passage.extension is not None:
            passage.extension.prompt_grew(prompt_tokens)

    @property
    def waiting(self) -> int:
        """Settlements that wait for the store."""
        return len(self._backlog)

    @property
    def sessions_waiting(self) -> int:
        """Sessions that have turns which the store has not heard of."""
        return self.recollections.unsaved

    async def written(self) -> None:
        """Give what waits for the store a last chance, when the gateway stops."""
        await self._backlog.closed()
        await self._catching_up.closed()

    async def original(self, caller: Caller, handle: str) -> Original:
        """What a handle of the caller's tenant stands for. Raises `ArtifactNotFound` or `StoreDown`."""
        try:
            found = await self.originals.read(Place(caller.tenant, caller.may.organisation), handle)
        except StoreError:
            raise StoreDown("The artifacts cannot be reached now.", headers=RETRY) from None
        if found is None:
            raise artifacts.not_found()
        return found

    async def close(self, passage: Passage, opened: Opened, bill: Bill | None) -> None:
        """Charge what was used, give back the rest, write the session. Never raises for a store that is away."""
        service, grant = passage.service, opened.grant
        self.outstanding.closed(grant)
        amounts: Amounts = {}
        progress = None
        if bill is not None:
            if passage.label == CLIENT:
                self._learn(passage, bill.used)
            amounts = service.costs.amounts(bill.used, passage.call.choices, passage.call.prompts, bill.charge)
            progress = self._progress(passage, opened, bill)
        entry = entry_of(passage, opened, bill)
        if grant.local:
            self._opening.ended(grant, amounts)
        limited = grant.scope.limits or entry is not None
        settling = ledger.settling(grant, amounts, entry) if limited else None
        saving = None if progress is None else _saving(opened.session, progress, service.session_limits)
        try:
            if passage.extension is not None:
                await passage.extension.ended()
            saved = None
            if settling is not None and saving is not None:
                _, saved = await self._store.ask(both(settling, saving), WRITE_SECONDS)
            elif settling is not None:
                await self._store.ask(settling, WRITE_SECONDS)
            elif saving is not None:
                saved = await self._store.ask(saving, WRITE_SECONDS)
            if saved is not None and progress is not None:
                self._metrics.sessions_live.set(saved.live, self._metrics.tenant(service.caller.tenant))
                if saved.evicted:
                    histories = service.caller.may.session.history != "none"
                    await self._forgetting.evicted(service.place, saved.evicted, histories=histories)
                await self._remember(opened.session, progress, service.session_limits, passage.memory, saved)
        except StoreError as error:
            self._noting.unwritten(error)
            if settling is not None and error.retryable:
                self._backlog.add(settling)
            if progress is not None and error.retryable:
                limits, memory = service.session_limits, passage.memory
                lost = self.recollections.unwritten(opened.session, progress, limits, memory, monotonic())
                self._metrics.late_sessions.add(lost, "lost")
                self._catching_up.begin()
        except BaseException:
            if settling is not None:  # the gateway stops and does not wait for the answer
                self._backlog.add(settling)
            raise

    async def _remember(
        self, session: Session, progress: Progress, limits: SessionLimits, memory: Memory, saved: Saved
    ) -> None:
        """A session is written: join its edits with those of others, and keep in mind how it was left."""
        if saved.other is not None:
            await self._memories.join(self._store.ask, session, saved, memory)
        self.recollections.saved(session, progress, saved, limits, memory, monotonic())

    async def _write_late(self, left: Left) -> bool:
        """Write a record that had waited; false if its session was deleted since. Raises `StoreError`."""
        assert left.unsaved is not None
        saved = await self._store.ask(_saving(left.session, left.unsaved, left.limits), WRITE_SECONDS)
        await self._forgetting.evicted(Place(left.session.tenant, left.session.organisation), saved.evicted)
        if self.recollections.still(left):
            await self._remember(left.session, left.unsaved, left.limits, left.memory, saved)
        return saved.status != "deleted"

    def _learn(self, passage: Passage, used: Usage) -> None:
        """What the call took, and what the home of a session that went on still held of what was sent unchanged."""
        planned = passage.planned
        own_tokens = planned.own_tokens if planned else None
        teaches = not passage.call.truncates and (planned is None or planned.teaches(used.prompt_tokens))
        self._forecast.learn(passage.call, passage.service, used, own_tokens, teaches=teaches)
        told, prefix = passage.delivery.usage, passage.prefix
        if told is not None and prefix is not None and passage.delivery.replica == prefix.home:
            self._forecast.learn_warmth(passage.service.name, prefix.of(told.prompt_tokens), told.cached_tokens)

    def _progress(self, passage: Passage, opened: Opened, bill: Bill) -> Progress | None:
        if not opened.session.id or passage.planned is None:
            return None
        memory = self._memories.changed(opened.session, opened.known.memory, passage.planned.memory)
        kv_read_bytes, prompt_tokens, before = bill.kv_read_bytes, bill.used.prompt_tokens, opened.unsaved
        if before is not None:
            memory = self._memories.sealed(opened.session, passage.planned.memory) if memory is None else memory
            kv_read_bytes, prompt_tokens = kv_read_bytes + before.kv_read_bytes, prompt_tokens + before.prompt_tokens
        # One that was known may be among them: there is always a last one.
        roles = [role_of(message) for message in passage.call.messages[max(0, opened.session.known_messages - 1) :]]
        return Progress(
            opened.chain,
            tokens=passage.planned.message_tokens,
            roles=roles,
            memory=memory,
            home=passage.delivery.replica,
            prompt_tokens=prompt_tokens,
            kv_read_bytes=kv_read_bytes,
            begins_turn=roles[-1] == "user",
        )


def _saving(session: Session, progress: Progress, limits: SessionLimits) -> Step[Saved]:
    return sessions.saving(session, progress, limits, 0.0 if session.read_ms else monotonic())
