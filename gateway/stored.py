"""Calls that send only what is new: `X-Context: stored`, with `X-Session-Id`.

Rule: the rest of the pipeline sees the whole conversation, as if the client had sent it. A turn is stored when its
reply has been relayed to its end; one that broke off, or whose client left, leaves the history as it was, so that the
same messages can be sent again. Without the store there is no such call.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, TypeVar

from budgets.script import Step
from gateway import errors, histories
from gateway.call import Call, Outcome
from gateway.dialects.base import ReplyReader
from gateway.errors import Fault
from gateway.histories import Ended, History, Key, Unreadable, Wish
from gateway.identity import named
from gateway.logs import log
from gateway.metrics import Metrics
from gateway.responder import Header, Responder
from gateway.service import Service
from gateway.sessions import Session, SessionLimits
from gateway.store import Store, StoreError
from gateway.tasks import Tasks
from gateway.tenants import Caller
from gateway.texts import Place, Texts
from gateway.vault import Vault

HEADER: Final = b"x-context"
SESSION: Final = b"x-session-id"
RETRIES: Final = b"x-stainless-retry-count"
"""In which the OpenAI and Anthropic SDKs tell that they send a request again."""
PATIENCE_SECONDS: Final = 2.0
"""How long the store may take for a history: megabytes need more than the milliseconds that numbers have."""
_MEANT: Final = re.compile(rb"[ \t]*stored\b", re.IGNORECASE)
_WISH: Final = re.compile(rb"[ \t]*stored[ \t]*(?:;[ \t]*(?:(new)|at=(\d{1,9}))[ \t]*)?", re.IGNORECASE)

T = TypeVar("T")


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
        may = service.caller.may.session
        if may.history != "stored":
            if _MEANT.match(headers[HEADER]) is None:
                return call, None
            raise errors.InvalidRequest("Histories are not stored for this key.", param="X-Context")
        wish = wish_of(headers[HEADER])
        reader = call.dialect.reader(call)
        if reader is None or call.choices != 1:
            what = "this path" if reader is None else f"`n` = {call.choices}; it must be 1"
            raise errors.InvalidRequest(f"`X-Context: stored` does not go with {what}.", param="X-Context")
        history = await self._opened(key_of(service.caller, headers), wish)
        turn = Turn(history, call.messages, reader, service.session_limits)
        try:
            bounded(turn, may.history_bytes)
            new_to(history, call, headers)
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

    async def _opened(self, key: Key, wish: Wish) -> History:
        turn = secrets.token_hex(12)
        try:
            return await self._run(histories.opening(self._vault, key, wish, turn), PATIENCE_SECONDS)
        except Unreadable as unreadable:
            self._metrics.histories.add(1, "unreadable")
            self._metrics.unopened.add(1, "history")
            await self._run(histories.leaving(unreadable.history))
            raise errors.HistoryUnreadable(
                "The history cannot be read any more. Delete it, and send the whole conversation with "
                "`X-Context: stored; new`.",
                headers=histories.NOT_AGAIN,
            ) from None
        except StoreError:
            # The answer may have been lost, not the question: then nobody would end the turn.
            self._background.start(self._undone(History(key, turn)), name="undo a lost turn")
            raise store_down() from None
        except Fault as fault:
            self._metrics.histories.add(1, label_of(fault))
            raise

    async def _undone(self, history: History) -> None:
        with suppress(StoreError):  # then its lease runs out
            await self._run(histories.leaving(history))

    async def _held(self, history: History) -> None:
        while True:
            await asyncio.sleep(histories.LEASE_SECONDS / 3)
            try:
                await self._run(histories.holding(history))
            except StoreError:
                continue  # the next one may come through before the lease is over

    async def _run(self, step: Step[T], seconds: float | None = None) -> T:
        return step.read(await self._store.run(step.script, step.keys, step.args, seconds))


def recorded(turn: Turn, session: Session, responder: Responder) -> None:
    """Read the reply as the client gets it. Raises `StoreDown`: what cannot be stored is not begun."""
    if session.status == "unread":
        raise store_down()
    responder.tee = turn.reader.feed


def wish_of(value: bytes) -> Wish:
    """What `X-Context` asks for. Raises `InvalidRequest`."""
    found = _WISH.fullmatch(value)
    if found is None:
        raise errors.InvalidRequest("`X-Context` must be `stored`, `stored; new` or `stored; at=N`.", param="X-Context")
    return Wish(begin=found[1] is not None, believed=None if found[2] is None else int(found[2]))


def key_of(caller: Caller, headers: Mapping[bytes, bytes]) -> Key:
    """The history that a request names. Raises `InvalidRequest`: no history may be one that somebody else guesses."""
    given = headers.get(SESSION, b"").decode("latin-1").strip()
    id = None if "|" in given else named(given)
    if id is None:
        raise errors.InvalidRequest(
            "`X-Context: stored` needs an `X-Session-Id` of 1 to 256 characters out of A-Z a-z 0-9 . _ : @ / + = -.",
            param="X-Session-Id",
        )
    return Key(place_of(caller), id)


def place_of(caller: Caller) -> Place:
    return Place(caller.tenant, caller.may.organisation)


def bounded(turn: Turn, most_bytes: int) -> None:
    """Raises `HistoryFull` if the history would be too large with what is new."""
    size = turn.history.bytes + sum(map(len, turn.new))
    if size > most_bytes:
        raise errors.HistoryFull(
            f"The history would have {size} bytes with these messages, and may have {most_bytes}.",
            extra={"limit": most_bytes, "requested": size, "stored_messages": len(turn.history.messages)},
        )


def new_to(history: History, call: Call, headers: Mapping[bytes, bytes]) -> None:
    """Raises `HistoryMoved` where an SDK sends again by itself what is stored already: only its answer was lost."""
    again = headers.get(RETRIES, b"0") != b"0"
    if again and call.messages == history.latest:
        raise errors.HistoryMoved(
            "These messages are stored already, with the reply to them, which did not arrive.",
            headers=histories.NOT_AGAIN,
            extra={"stored_messages": len(history.messages)},
        )


def label_of(fault: Fault) -> str:
    """What the metric calls it."""
    return (errors.ANSWERS[type(fault)].code or "invalid").removeprefix("history_")


def store_down() -> Fault:
    return errors.StoreDown("The histories cannot be reached now.", headers=((b"retry-after", b"1"),))
