"""Steps 3 and 9: the session and the budget, opened together and closed together, one round trip each.

Rule: what step 3 took, step 9 gives back or charges, whatever happened between. A store that is away is not an outage:
the session is then neither read nor written, and each limit says what happens to the budget.
"""

import logging
from collections.abc import Awaitable, Mapping, Sequence
from typing import Final

import msgspec

from budgets import ledger
from budgets.allowance import LocalAllowance
from budgets.ledger import Amounts, Denied, Grant, Scope
from budgets.script import Argument, Script
from budgets.usage import Usage
from gateway import digests
from gateway.call import Call
from gateway.clock import monotonic, wall
from gateway.context import Known
from gateway.denials import fault_of
from gateway.forecast import Forecast
from gateway.identity import identify
from gateway.logs import log
from gateway.metrics import Metrics
from gateway.passage import Opened, Passage
from gateway.service import Service
from gateway.sessions import Progress, Session, Sessions
from gateway.store import Store, StoreError
from policies.memory import EMPTY, Memory

NO_SESSION: Final = Session("", "", "unread")
WARN_EVERY_SECONDS: Final = 10.0
WRITE_SECONDS: Final = 2.0
"""How long step 9 waits for the store: it delays no answer, and a charge that is late is better than one lost."""


class _Role(msgspec.Struct):
    role: str = ""


_ROLE = msgspec.json.Decoder(_Role)


class Books:
    """Opens and closes the accounts of calls."""

    def __init__(self, store: Store, metrics: Metrics, forecast: Forecast) -> None:
        self._store = store
        self._sessions = Sessions(store)
        self._metrics = metrics
        self._forecast = forecast
        self._local = LocalAllowance()
        self._warned_at = -WARN_EVERY_SECONDS

    async def open(self, call: Call, service: Service, headers: Mapping[bytes, bytes]) -> Opened:
        """The session and a grant. Raises `RateLimited`, or `StoreDown` where a limit lets nothing pass unchecked."""
        names = digests.of_messages(call.messages)
        chain = digests.chained(names)
        expected = self._forecast.usage(call, service)
        amounts = service.amounts(expected, call.choices)
        tenant = service.caller.tenant
        # Both leave with the same flush: a script is sent when it is called, not when it is awaited.
        reading = self._sessions.load(tenant, session_id(call, service, headers, names), chain)
        reserving = ledger.reserve(self._store.run, service.scope, amounts)
        session = await self._read(reading)
        found = await self._reserved(reserving, service.scope, amounts)
        if isinstance(found, Denied):
            self._metrics.denied.add(1, self._metrics.tenant(tenant), found.label)
            raise fault_of(found)
        memory = Memory.loads(session.memory) if session.memory else EMPTY
        return Opened(session, Known(names, session.known_messages, memory), chain, found, expected)

    async def close(self, passage: Passage, opened: Opened, used: Usage | None) -> None:
        """Charge what was used, give back the rest, write the session. Never raises for a store that is away."""
        if used is not None:
            own_tokens = passage.planned.own_tokens if passage.planned else None
            self._forecast.learn(passage.call, passage.service, used, own_tokens)
        amounts = passage.service.amounts(used, passage.call.choices) if used is not None else {}
        settling = ledger.settle(self._write, opened.grant, amounts)
        saving = self._saving(passage, opened, used) if used is not None else None
        await self._written(settling, "settle")
        if saving is not None:
            await self._written(saving, "save")

    async def _read(self, reading: Awaitable[Session]) -> Session:
        try:
            session = await reading
        except StoreError:
            session = NO_SESSION
        self._metrics.sessions.add(1, session.status)
        return session

    async def _reserved(self, reserving: Awaitable[Grant | Denied], scope: Scope, amounts: Amounts) -> Grant | Denied:
        try:
            return await reserving
        except StoreError:
            return self._local.decide(scope, amounts, monotonic(), wall())

    async def _written(self, writing: Awaitable[object], what: str) -> None:
        try:
            await writing
        except StoreError as error:
            self._metrics.unwritten.add(1, what)
            self._warn(error)

    def _warn(self, error: StoreError) -> None:
        """Say it, but not for every call of an outage: the metrics count them all."""
        now = monotonic()
        if now - self._warned_at >= WARN_EVERY_SECONDS:
            self._warned_at = now
            log(logging.WARNING, "calls are not written to the store", error=str(error))

    def _write(self, script: Script, keys: Sequence[str], args: Sequence[Argument]) -> Awaitable[object]:
        return self._store.run(script, keys, args, WRITE_SECONDS)

    def _saving(self, passage: Passage, opened: Opened, used: Usage) -> Awaitable[object] | None:
        if not opened.chain or passage.planned is None:
            return None
        progress = Progress(
            opened.chain,
            tokens=passage.planned.message_tokens,
            memory=passage.planned.memory.dumps() if passage.planned.memory is not EMPTY else b"",
            home=passage.delivery.replica,
            prompt_tokens=used.prompt_tokens,
            kv_read_bytes=passage.kv_read_bytes(used),
            begins_turn=role_of(passage.call.messages[-1]) == "user",
        )
        return self._sessions.save(opened.session, progress, passage.service.session_limits)


def session_id(call: Call, service: Service, headers: Mapping[bytes, bytes], names: tuple[bytes, ...]) -> str:
    """The session that a call claims, or one derived from how its conversation opens."""
    opener = b"".join(names[: first_user(call) + 1])
    return identify(headers, call.hints, service.caller.tenant, service.model.name, opener).id


def first_user(call: Call) -> int:
    """Where the first user message stands: what comes before it is the same in every chat of an application."""
    for at, message in enumerate(call.messages):
        if role_of(message) == "user":
            return at
    return len(call.messages)


def role_of(message: bytes) -> str:
    try:
        return _ROLE.decode(message).role
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""
