"""Calls that send only what is new: `X-Context: stored`, with `X-Session-Id`.

Rule: the rest of the pipeline sees the whole conversation, as if the client had sent it. A turn is stored when its
reply has been relayed to its end; one that broke off, or whose client left, leaves the history as it was, so that the
same messages can be sent again. Without the store there is no such call.
"""

import asyncio
import logging
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import msgspec

from budgets.script import Step
from gateway import errors, histories
from gateway.call import Call, Outcome
from gateway.dialects.base import ReplyReader
from gateway.errors import Fault
from gateway.histories import Ended, History, Key, Unreadable, Wish
from gateway.history_wish import HEADER, bounded, key_of, meant, new_to, place_of, reader_of, sent_again, wish_of
from gateway.identity import named
from gateway.logs import log
from gateway.metrics import Metrics
from gateway.responder import Header, Responder
from gateway.service import Service
from gateway.sessions import Session, SessionLimits
from gateway.store import Store, StoreError
from gateway.tasks import Tasks
from gateway.tenants import Caller
from gateway.texts import Texts
from gateway.vault import Vault

PATIENCE_SECONDS: Final = 2.0
"""How long the store may take for a history: megabytes need more than the milliseconds that numbers have."""

__all__ = ["HEADER", "Stored", "Turn", "recorded"]


@dataclass(slots=True)
class Turn:
    """One turn of a history: what the client sent, and what reads the reply to it."""

    history: History
    new: tuple[bytes, ...]
    reader: ReplyReader
    limits: SessionLimits
    holder: "asyncio.Task[None] | None" = None
    writing: "asyncio.Future[object] | None" = None
    step: Step[Ended] | None = None

    @property
    def header(self) -> Header:
        """How many messages the history has once this turn is stored."""
        return b"x-kvgate-history", b"%d" % (len(self.history.messages) + len(self.new) + 1)


class Stored:
    """Opens and ends turns."""

    def __init__(self, store: Store, vault: Vault, metrics: Metrics, background: Tasks) -> None:
        self._store = store
        self._vault = vault
        self._metrics = metrics
        self._background = background
        self._texts = Texts(store, metrics)

    async def begin(self, call: Call, service: Service, headers: Mapping[bytes, bytes]) -> tuple[Call, Turn | None]:
        """The call with the history before its messages. Raises a `Fault` that says why there is none.

        The call as it is, where the header is somebody else's: the tier stores nothing and the client did not ask.
        """
        if service.caller.may.session.history != "stored":
            if not meant(headers):
                return call, None
            raise errors.InvalidRequest("Histories are not stored for this key.", param="X-Context")
        key, wish = key_of(service.caller, headers), wish_of(headers)
        return await self.turn(call, service, key, wish, again=sent_again(headers))

    async def turn(
        self, call: Call, service: Service, key: Key, wish: Wish, *, again: bool = False
    ) -> tuple[Call, Turn]:
        """The same for a history that is named in any other way. `again`: a client library repeats the call."""
        reader, may = reader_of(call), service.caller.may.session
        history = await self._opened(key, wish)
        turn = Turn(history, call.messages, reader, service.session_limits)
        try:
            bounded(history, call.messages, may.history_bytes)
            if again:
                new_to(history, call.messages)
            whole = call.dialect.continued(call, history.messages)
        except Fault as fault:
            self._metrics.histories.add(1, label_of(fault))
            await self.abandon(turn)
            raise
        self._metrics.histories.add(1, "begun" if wish.begin else "continued")
        turn.holder = self._background.start(self._held(history), name="hold a history")
        return whole, turn

    async def abandon(self, turn: Turn) -> None:
        """End a turn before it came to an engine."""
        self.end(turn, "failed")
        await self.ended(turn)

    def end(self, turn: Turn, outcome: Outcome) -> None:
        """Send to the store what the turn comes to; `ended` waits for it."""
        if turn.holder is not None:
            turn.holder.cancel()
        reply = turn.reader.message() if outcome == "ok" else None
        if reply is not None:
            turn.step = histories.appending(turn.history, self._vault, (*turn.new, reply), turn.limits)
        else:
            turn.step = histories.leaving(turn.history, doubt=outcome == "ok")
        turn.writing = self._store.run(turn.step.script, turn.step.keys, turn.step.args, PATIENCE_SECONDS)

    async def ended(self, turn: Turn) -> None:
        """Wait until it is written. Never raises for a store that is away: then the next turn is told."""
        assert turn.writing is not None and turn.step is not None
        try:
            done = turn.step.read(await turn.writing)
            if done.texts is not None:
                await self._texts.settle(turn.history.key.place, done.texts)
        except StoreError as error:
            self._metrics.histories.add(1, "unwritten")
            log(logging.WARNING, "a turn is not written to its history", error=str(error))
            return
        if not done.done:
            self._metrics.histories.add(1, "lost")
            log(logging.WARNING, "a turn ended when its history was gone or another turn's")

    async def read(self, caller: Caller, id: str) -> bytes:
        """The history of a session, as JSON. Raises `HistoryNotFound`, `HistoryUnreadable` or `StoreDown`."""
        kept = named(id)
        if kept is None:
            raise errors.HistoryNotFound("There is no history under this session id.")
        try:
            step = histories.reading(self._vault, Key(place_of(caller), kept))
            found = await self._store.ask(step, PATIENCE_SECONDS)
        except Unreadable:
            self._metrics.unopened.add(1, "history")
            raise unreadable_fault() from None
        except StoreError:
            raise store_down() from None
        head = msgspec.json.encode({"id": id, "object": "session", "stored_messages": len(found.messages)})
        return b'%b,"messages":[%b]}' % (head[:-1], b",".join(found.messages))

    async def _opened(self, key: Key, wish: Wish) -> History:
        turn = secrets.token_hex(12)
        try:
            return await self._store.ask(histories.opening(self._vault, key, wish, turn), PATIENCE_SECONDS)
        except Unreadable as unreadable:
            self._metrics.histories.add(1, "unreadable")
            self._metrics.unopened.add(1, "history")
            await self._undone(unreadable.history)
            raise unreadable_fault() from None
        except Fault as fault:
            self._metrics.histories.add(1, label_of(fault))
            raise
        except BaseException as lost:
            # The answer may have been lost, not the question: then nobody would end the turn.
            self._background.start(self._undone(History(key, turn)), name="undo a lost turn")
            if isinstance(lost, StoreError):
                raise store_down() from None
            raise

    async def _undone(self, history: History) -> None:
        with suppress(StoreError):  # then its lease runs out
            await self._store.ask(histories.leaving(history))

    async def _held(self, history: History) -> None:
        while True:
            await asyncio.sleep(histories.LEASE_SECONDS / 3)
            try:
                await self._store.ask(histories.holding(history))
            except StoreError:
                continue  # the next one may come through before the lease is over


def recorded(turn: Turn, session: Session, responder: Responder) -> None:
    """Read the reply as the client gets it. Raises `StoreDown`: what cannot be stored is not begun."""
    if session.status in ("unread", "recalled"):
        raise store_down()
    responder.tee = turn.reader.feed


def label_of(fault: Fault) -> str:
    """What the metric calls it."""
    return (errors.ANSWERS[type(fault)].code or "invalid").removeprefix("history_")


def unreadable_fault() -> Fault:
    return errors.HistoryUnreadable(
        "The history cannot be read any more. Delete it, and send the whole conversation with "
        "`X-Context: stored; new`.",
        headers=histories.NOT_AGAIN,
    )


def store_down() -> Fault:
    return errors.StoreDown("The histories cannot be reached now.", headers=((b"retry-after", b"1"),))
