"""Histories in the store: the messages of a conversation, so that a client sends only what is new.

Rule: nothing is lost without a word and nothing is stored twice. A history is begun or continued by express wish, one
turn has it at a time, and what a turn adds is appended, sealed, in one write. Where it is not certain that the last
turn was recorded, whoever comes next is told so and must say how many messages it believes are there.

Messages are bytes to this module; which wire format they are of is for others to know. The keys are described in
docs/redis.md.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal, cast

import msgspec

from budgets.script import Script, Step
from gateway import errors
from gateway.sessions import SessionLimits
from gateway.texts import LIBRARY, Counted, Place, counted
from gateway.vault import Vault, VaultError

LEASE_SECONDS: Final = 30.0
"""How long a turn has its history without holding it anew; as long as others wait for a gateway that died."""
NOT_AGAIN: Final = ((b"x-should-retry", b"false"),)

_OPEN: Final = Script.load("gateway", "history_open", LIBRARY)
_READ: Final = Script.load("gateway", "history_read")
_END: Final = Script.load("gateway", "history_end", LIBRARY)
_MESSAGES: Final = msgspec.msgpack.Decoder(tuple[bytes, ...])

How = Literal["hold", "append", "undo", "doubt"]


@dataclass(frozen=True, slots=True)
class Key:
    """Which history: a session's, under the same id."""

    place: Place
    id: str

    @property
    def member(self) -> str:
        """Its name among the tenant's texts."""
        return member_of(self.id)

    @property
    def keys(self) -> tuple[str, ...]:
        return (self.place.key(self.member), *self.place.texts)

    def sealed_at(self, item: int) -> str:
        """The place of an item, for the vault."""
        return f"{self.place.key(self.member)} {item}"


@dataclass(frozen=True, slots=True)
class Wish:
    """How a client wants a history: a new one, or one that goes on, maybe with as many messages as it believes."""

    begin: bool = False
    believed: int | None = None


@dataclass(frozen=True, slots=True)
class History:
    """A history as a turn found it, and has it. `latest`: what the client sent last; `bytes`: as stored."""

    key: Key
    turn: str
    messages: tuple[bytes, ...] = ()
    latest: tuple[bytes, ...] = ()
    items: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Ended:
    """`done`: false where the history was not the turn's any more, so that nothing was written."""

    done: bool
    texts: Counted | None = None


def member_of(id: str) -> str:
    """The history of a session, among the tenant's texts."""
    return f"h:{id}"


def opening(vault: Vault, key: Key, wish: Wish, turn: str) -> Step[History]:
    """Begin a history or a turn of one. `turn` is a name that no other turn has.

    Reading raises `HistoryNotFound`, `HistoryExists`, `HistoryBusy`, `HistoryMoved`, `HistoryUnsettled` or
    `HistoryUnreadable`; then there is nothing to end, but for the last one.
    """
    believed = -1 if wish.believed is None else wish.believed
    args = (key.member, turn, int(LEASE_SECONDS * 1000), int(wish.begin), believed)
    return Step(_OPEN, key.keys, args, partial(_opened, vault, key, turn))


def reading(vault: Vault, key: Key) -> Step[History]:
    """What is stored, whoever has a turn of it. Reading raises `HistoryNotFound`, or `Unreadable`."""
    return Step(_READ, key.keys[:2], (key.member,), partial(_read, vault, key))


def holding(history: History) -> Step[Ended]:
    """Have it for another lease."""
    return _ending(history, "hold")


def leaving(history: History, *, doubt: bool = False) -> Step[Ended]:
    """End a turn that adds nothing. With `doubt` it may have, so that the next one is told."""
    return _ending(history, "doubt" if doubt else "undo")


def appending(history: History, vault: Vault, messages: Sequence[bytes], limits: SessionLimits) -> Step[Ended]:
    """End a turn that adds these messages."""
    item = vault.seal(msgspec.msgpack.encode(messages), history.key.sealed_at(history.items))
    return _ending(history, "append", limits, (len(messages), item))


def _ending(
    history: History, how: How, limits: SessionLimits | None = None, added: tuple[int, bytes] | None = None
) -> Step[Ended]:
    limits = limits or SessionLimits()
    args = (
        history.key.member,
        history.turn,
        how,
        int(LEASE_SECONDS * 1000),
        int(limits.idle_seconds * 1000),
        int(limits.absolute_seconds * 1000),
        limits.stored_bytes,
        *(added or ()),
    )
    return Step(_END, history.key.keys, args, _ended)


def _ended(reply: object) -> Ended:
    done, total, gone = cast("tuple[int, int, list[bytes]]", reply)
    return Ended(done == 1, counted((total, gone)) if total >= 0 else None)


def _opened(vault: Vault, key: Key, turn: str, reply: object) -> History:
    found, messages, *rest = cast("list[object]", reply)
    if found != b"open":
        raise _refusal(cast(bytes, found).decode(), cast(int, messages), rest)
    _, bytes_, *items = cast("list[int | bytes]", rest)
    return _whole(vault, History(key, turn, items=len(items), bytes=cast(int, bytes_)), cast(int, messages), items)


def _read(vault: Vault, key: Key, reply: object) -> History:
    messages, *items = cast("list[int | bytes]", reply)
    if not messages:
        raise _refusal("gone", 0, ())
    return _whole(vault, History(key, "", items=len(items)), cast(int, messages), items)


def _whole(vault: Vault, history: History, messages: int, items: Sequence[int | bytes]) -> History:
    key = history.key
    try:
        read = [_MESSAGES.decode(vault.open(cast(bytes, item), key.sealed_at(at))) for at, item in enumerate(items)]
    except (VaultError, msgspec.DecodeError):
        raise Unreadable(history) from None
    whole = tuple([message for part in read for message in part])
    if len(whole) != messages:
        raise Unreadable(history)
    return replace(history, messages=whole, latest=read[-1][:-1] if read else ())


class Unreadable(Exception):
    """A history that was opened and cannot be read; its turn is still to be ended."""

    def __init__(self, history: History) -> None:
        super().__init__("a history cannot be read")
        self.history = history


def _refusal(found: str, messages: int, rest: Sequence[object]) -> errors.Fault:
    extra = {"stored_messages": messages}
    if found == "busy":
        seconds = max(1, -(-cast(int, rest[0]) // 1000))
        return errors.HistoryBusy(
            "Another turn of this history is under way; send this one when it has ended.",
            headers=((b"retry-after", b"1"),),
            extra=extra | {"busy_seconds": seconds},
        )
    if found == "exists":
        return errors.HistoryExists(
            f"There is a history under this session id, with {messages} messages; continue it, delete it, or begin "
            "another under a new id.",
            headers=NOT_AGAIN,
            extra=extra,
        )
    if found == "moved":
        return errors.HistoryMoved(
            f"The history has {messages} messages, not as many as the request says.", headers=NOT_AGAIN, extra=extra
        )
    if found == "unsettled":
        return errors.HistoryUnsettled(
            f"It is not certain that the last turn was recorded. The history has {messages} messages; if that is what "
            f"you expect, or you have sent again what is missing, say so: `X-Context: stored; at={messages}`.",
            headers=NOT_AGAIN,
            extra=extra,
        )
    return errors.HistoryNotFound(
        "There is no history under this session id, or no more: it expired, was deleted, or was never begun. Send the "
        "whole conversation with `X-Context: stored; new`.",
    )
