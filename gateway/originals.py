"""Originals of shortened tool outputs and of messages left out, in the store, and the promise of their handles.

Rule: no handle leaves for an engine that could not be redeemed at that moment. What is new is written first; what was
shown before is looked after: when less than the tier's time is left of it, it is renewed, or written again from the
request, which always has it in full. A handle for which neither succeeds is not shown. Each is due by its own time, so
a new one costs the same however many there are.

The keys are described in docs/redis.md.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from msgspec import structs

from budgets.script import Argument, Script, Step, both
from gateway.metrics import Metrics
from gateway.service import Service
from gateway.sessions import Session
from gateway.shown import Makers, parts_of
from gateway.store import Store, StoreError
from gateway.texts import LIBRARY, Counted, Place, Texts, counted
from gateway.vault import Vault, VaultError

_ALIVE: Final = Script.load("gateway", "originals_alive")
_KEEP: Final = Script.load("gateway", "originals_keep", LIBRARY)
_READ: Final = Script.load("gateway", "originals_read")
_FORGET: Final = Script.load("gateway", "originals_forget", LIBRARY)

SPARE: Final = 1 / 8
"""So much longer than promised an original is kept, so that it is renewed that seldom while its session goes on."""
REMEMBERED_SECONDS: Final = 86_400.0
"""How long originals are kept whose handles are still shown although no policy keeps any more."""
WAIT_SECONDS: Final = 0.25
"""How long a request waits for its originals to be written. Longer than for other calls: they may be large."""


@dataclass(frozen=True, slots=True)
class Original:
    """A tool output as it came, or messages as they can be read again, and for how long it is there."""

    text: str
    seconds_left: float


def checked(loading: Step[Session], place: Place, session: str) -> Step[Session]:
    """`loading`, which then also finds which originals of the session are there and for how long."""
    alive = Step(_ALIVE, (_of_session(place, session), place.texts[1]), (), _seconds_left)
    joined = both(loading, alive)
    return Step(joined.script, joined.keys, joined.args, partial(_with_originals, joined))


def _with_originals(joined: Step[tuple[Session, Mapping[str, float]]], reply: object) -> Session:
    session, originals = joined.read(reply)
    return structs.replace(session, originals=originals)


def _seconds_left(reply: object) -> Mapping[str, float]:
    found = cast("list[bytes | int]", reply)
    pairs = zip(cast("list[bytes]", found[::2]), cast("list[int]", found[1::2]), strict=True)
    return {handle.decode(): left_ms / 1000 for handle, left_ms in pairs}


@dataclass(frozen=True, slots=True)
class _Whose:
    """For which session, as read when, and how long originals are kept, and how much text its tenant may have."""

    place: Place
    session: str
    read_ms: int
    stored_bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class _Kept:
    counted: Counted
    missing: frozenset[str]


class Originals:
    """Keeps, reads and forgets originals of all tenants."""

    def __init__(self, store: Store, vault: Vault, metrics: Metrics) -> None:
        self._store = store
        self._vault = vault
        self._metrics = metrics
        self._texts = Texts(store, metrics)

    async def hold(
        self, service: Service, session: str, there: Mapping[str, float], shown: Makers, read_ms: int = 0
    ) -> frozenset[str]:
        """The handles of `shown` (each with what makes its original) that may be shown.

        `there`: which of them the store had when the session was read, at `read_ms` by its clock (0: not known), and
        seconds left.
        """
        seconds = service.keep_seconds or REMEMBERED_SECONDS
        due = [handle for handle in shown if there.get(handle, 0.0) < seconds]
        if not due:
            return frozenset(shown)
        whose = _Whose(service.place, session, read_ms, service.session_limits.stored_bytes, seconds)
        held = await self._held(whose, there, shown, due)
        counts = self._metrics.originals
        counts.add(len(held - there.keys()), "written")
        counts.add(len(held.intersection(due) & there.keys()), "renewed")
        counts.add(len(shown) - len(held), "refused")
        return held

    async def _held(
        self, whose: _Whose, there: Mapping[str, float], shown: Makers, due: Sequence[str]
    ) -> frozenset[str]:
        held = frozenset(shown)
        try:
            asked = {handle: None if handle in there else shown[handle]() for handle in due}
            missing = await self._keep(whose, asked)
            if missing and missing & held & there.keys():  # gone since it was opened, or pushed out by what was written
                asked = {h: shown[h]() if h in missing else None for h in shown if h not in missing or h in there}
                held, missing = frozenset(asked), await self._keep(whose, asked)
        except StoreError:
            return frozenset()
        return frozenset() if missing is None else held - missing

    async def read(self, place: Place, handle: str) -> Original | None:
        """What a handle of the tenant stands for. Raises `StoreError`."""
        found = await self._read(place, handle)
        if found is None or not (parts := parts_of(handle, found.text)):
            return found
        read = [part for part in await asyncio.gather(*(self._read(place, part) for part in parts)) if part is not None]
        if len(read) < len(parts):
            return None
        seconds = min(part.seconds_left for part in (found, *read))
        return Original("\n".join(part.text for part in read), seconds)

    async def _read(self, place: Place, handle: str) -> Original | None:
        member = _member(handle)
        key = place.key(member)
        found = await self._store.run(_READ, (place.texts[1], key), (member,), WAIT_SECONDS)
        if found is None:
            return None
        sealed, left_ms = cast("tuple[bytes, int]", found)
        try:
            return Original(self._vault.open(sealed, key).decode("utf-8", "surrogatepass"), left_ms / 1000)
        except VaultError:
            self._metrics.unopened.add(1, "original")
            return None

    async def forget(self, place: Place, session: str) -> bool:
        """Delete what belongs to this session only; false if there was nothing. Raises `StoreError`."""
        of_session = _of_session(place, session)
        found = cast("list[bytes]", await self._store.command("ZRANGE", of_session, 0, -1, key=of_session))
        if not found:
            return False
        handles = [handle.decode() for handle in found]
        await self._store.run(_FORGET, (*place.texts, of_session, *_keys(place, handles)), (session, *handles))
        return True

    async def _keep(self, whose: _Whose, texts: Mapping[str, str | None]) -> frozenset[str] | None:
        """Write originals, or renew those without a text; which of all handles are not there then.

        None: none is, for the session was deleted since it was read.
        """
        place, ttl_ms = whose.place, int(whose.seconds * (1 + SPARE) * 1000)
        args: list[Argument] = [whose.session, whose.stored_bytes, ttl_ms, whose.read_ms]
        for handle, text in texts.items():
            args += (handle, b"" if text is None else self._sealed(place, handle, text))
        keys = (*place.texts, _of_session(place, whose.session), place.deleted, *_keys(place, list(texts)))
        reply = await self._store.run(_KEEP, keys, args, WAIT_SECONDS)
        if reply is None:
            return None
        kept = _kept(reply)
        await self._texts.settle(place, kept.counted)
        return kept.missing.union([member.removeprefix("o:") for member in kept.counted.evicted])

    def _sealed(self, place: Place, handle: str, text: str) -> bytes:
        return self._vault.seal(text.encode("utf-8", "surrogatepass"), place.key(_member(handle)))


def _kept(reply: object) -> _Kept:
    total, gone, missing = cast("tuple[int, list[bytes], list[bytes]]", reply)
    return _Kept(counted([total, gone]), frozenset(handle.decode() for handle in missing))


def _member(handle: str) -> str:
    return f"o:{handle}"


def _of_session(place: Place, session: str) -> str:
    return place.key(f"kept:{session}")


def _keys(place: Place, handles: Sequence[str]) -> list[str]:
    """An original and its sessions, for each handle."""
    return [key for handle in handles for key in (place.key(f"o:{handle}"), place.key(f"o:{handle}:sessions"))]
