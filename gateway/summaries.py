"""Records of older turns in the store: made once for all gateways, kept apart from their session, deleted with it.

Rule: a record is found by its name, in the keys of its session and tenant only. Who makes one has the right to it for a
time; who dies, or whose session was deleted meanwhile, keeps nothing. A record in use lives on.

The keys are described in docs/redis.md.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, cast

from budgets.script import Argument, Script
from gateway.metrics import Metrics
from gateway.recent import Recent
from gateway.service import Service
from gateway.store import Store
from gateway.texts import LIBRARY, Place, Texts, counted
from gateway.vault import Vault, VaultError

_TAKE: Final = Script.load("gateway", "summaries_take")
_PUT: Final = Script.load("gateway", "summaries_put", LIBRARY)
_READ: Final = Script.load("gateway", "summaries_read", LIBRARY)
_FORGET: Final = Script.load("gateway", "summaries_forget", LIBRARY)

MOST_OF_A_SESSION: Final = 8
"""Records of a session that are kept: a fork may still use an older one."""
MOST_CHARACTERS: Final = 16 * 1024 * 1024
WAIT_SECONDS: Final = 0.25


@dataclass(frozen=True, slots=True)
class Right:
    """The right to make the record `name` of a session."""

    service: Service
    session: str
    name: bytes
    token: str


class Summaries:
    """Reads, writes and deletes records of all tenants. Raises `StoreError`."""

    def __init__(self, store: Store, vault: Vault, metrics: Metrics) -> None:
        self._store = store
        self._vault = vault
        self._metrics = metrics
        self._texts = Texts(store, metrics)

    async def read(self, service: Service, session: str, names: Sequence[bytes], seconds: float) -> dict[bytes, str]:
        """Those of the records that there are; all of the session's then live for `seconds` more."""
        member, keys = _member(session), _keys(service.place, session)
        args: list[Argument] = [member, int(seconds * 1000), *names]
        reply = await self._store.run(_READ, (*service.place.texts, keys[0]), args, WAIT_SECONDS)
        found = zip(names, cast("list[bytes | None]", reply), strict=False)
        opened = {name: self._opened(service.place, session, name, sealed) for name, sealed in found if sealed}
        return {name: text for name, text in opened.items() if text is not None}

    async def take(
        self, service: Service, session: str, name: bytes, lease_seconds: float, read_ms: int = 0
    ) -> Right | str | Literal[False] | None:
        """The right to make a record, the record if it is there, or None while another makes it.

        False for a session that was deleted since it was read, at `read_ms` by the store's clock (0: not known).
        """
        right = Right(service, session, name, secrets.token_hex(8))
        keys = (service.place.texts[0], *_keys(service.place, session), service.place.deleted)
        for of_no_use in (0, 1):
            args = (_member(session), name, right.token, int(lease_seconds * 1000), of_no_use, session, read_ms)
            status, *sealed = cast("list[bytes]", await self._store.run(_TAKE, keys, args, WAIT_SECONDS))
            if status == b"deleted":
                return False
            if status != b"ready":
                return right if status == b"taken" else None
            if (text := self._opened(service.place, session, name, sealed[0])) is not None:
                return text
        return None

    async def put(self, right: Right, text: str, seconds: float) -> bool:
        """Keep a record for so long; false if the right to it is gone."""
        sealed = self._vault.seal(text.encode(), _place(right.service.place, right.session, right.name))
        cap = right.service.session_limits.stored_bytes
        return await self._put(right, (sealed, int(seconds * 1000), cap, MOST_OF_A_SESSION))

    async def give_back(self, right: Right) -> None:
        """Let another make it."""
        await self._put(right, ())

    async def forget(self, place: Place, session: str) -> bool:
        """Delete what there is of a session; false if there was nothing."""
        keys = (*place.texts, *_keys(place, session))
        return bool(await self._store.run(_FORGET, keys, (_member(session),)))

    async def _put(self, right: Right, more: Iterable[Argument]) -> bool:
        place = right.service.place
        keys = (*place.texts, *_keys(place, right.session))
        args = (_member(right.session), right.name, right.token, *more)
        kept, total, gone = cast("tuple[int, int, list[bytes]]", await self._store.run(_PUT, keys, args, WAIT_SECONDS))
        if kept:
            await self._texts.settle(place, counted([total, gone]))
        return bool(kept)

    def _opened(self, place: Place, session: str, name: bytes, sealed: bytes) -> str | None:
        try:
            return self._vault.open(sealed, _place(place, session, name)).decode()
        except VaultError:
            self._metrics.unopened.add(1, "summary")
            return None


class Remembered:
    """Records that this process has read or made, each for its own session: at most so many characters of them.

    Only for records that a session has in force: whether any other still exists, the store alone can say.
    """

    def __init__(self, most_characters: int = MOST_CHARACTERS) -> None:
        self.records: Recent[tuple[str, str, bytes], tuple[str, float]] = Recent(most_characters, _characters)

    def read(self, service: Service, session: str, records: Mapping[bytes, str], now: float) -> None:
        """The store had these."""
        for name, text in records.items():
            self.records.keep((service.caller.tenant, session, name), (text, now))

    def used(self, service: Service, session: str, name: bytes, text: str, now: float) -> None:
        """This one was sent; when the store had it last stays as it is, so that it is asked for again in time."""
        key = (service.caller.tenant, session, name)
        _, at = self.records.get(key) or ("", now)
        self.records.keep(key, (text, at))

    def of(self, service: Service, session: str, name: bytes, since: float) -> str | None:
        """A record that the store had at `since` or later."""
        text, at = self.records.get((service.caller.tenant, session, name)) or (None, 0.0)
        return text if at >= since else None


def _characters(record: tuple[str, float]) -> int:
    return len(record[0])


def _member(session: str) -> str:
    return f"sum:{session}"


def _keys(place: Place, session: str) -> tuple[str, str]:
    """The records of a session, and who makes one."""
    return place.key(_member(session)), place.key(f"making:{session}")


def _place(place: Place, session: str, name: bytes) -> str:
    """Where a record lies, for the vault."""
    return f"{place.key(_member(session))} {name.hex()}"
