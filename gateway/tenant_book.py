"""The book of tenants in the store: read whole, read what changed, and changed with a word on who did it.

Rule: a record and the entry about its change are written by one script or not at all, and only in the place of what
the writer has read. Nothing ever takes an entry off the list of changes.
"""

import logging
import secrets
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

import msgspec

from gateway.logs import log
from gateway.store import Script, Store
from gateway.tenant_record import StoredTenant, decoded, encoded

_SPACE: Final = "kvgate:1:{_tenants}"
"""No tenant has such a name, so no key of a tenant is among these."""
BOOK: Final = f"{_SPACE}:book"
CHANGES: Final = f"{_SPACE}:changes"
MARK: Final = f"{_SPACE}:secret"
LAST: Final = f"{_SPACE}:last"
_KEYS: Final = (BOOK, CHANGES, MARK, LAST)
NOTHING_KNOWN: Final = ""
"""What a reader says that has read nothing yet."""

_READ: Final = Script.load("gateway", "tenants_read")
_WRITE: Final = Script.load("gateway", "tenants_write")
_MOST_NEWS: Final = 1_000
_PAGE: Final = 500
_SECONDS: Final = 5.0
"""Nobody's request waits for these calls."""

Via = Literal["cli", "api"]


class OtherSecret(Exception):
    """The keys in the store were made with another secret than this process has."""


@dataclass(frozen=True, slots=True)
class Note:
    """What the list of changes says of one: who (as the person calls itself), which way it came, what was done."""

    who: str
    via: Via
    action: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Found:
    """A record and its very bytes, which say whether it is still the same; None: there is none."""

    record: StoredTenant | None
    stored: bytes = b""


@dataclass(frozen=True, slots=True)
class News:
    """What changed until the change `last`. `changed`: records by tenant, None for one that is gone.

    `whole`: `changed` is all there is. `mark` tells with which secret the keys were made; "": there is none yet.
    """

    last: str
    mark: str
    whole: bool
    changed: dict[str, StoredTenant | None]


@dataclass(frozen=True, slots=True)
class Entry:
    """One change, as the list of changes has it; `at_ms` since 1970, by the store's clock."""

    id: str
    at_ms: int
    tenant: str
    who: str
    via: str
    action: str
    detail: dict[str, Any]


class TenantBook:
    """Reads and writes it. Every method raises `StoreError` if the store does not do it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def news(self, known: str) -> News:
        """What changed since the change `known`, in one call; the whole book where that cannot be told."""
        reply = await self._store.run(_READ, _KEYS, (known, _MOST_NEWS), _SECONDS)
        last, mark, *told = cast("list[Any]", reply)
        if told and told[0] == 0:  # what changes while the pages are read is news again after `last`
            records = {record.name: record async for record in self.records()}
            return News(last.decode(), mark.decode(), True, dict(records))
        names, stored = told[1:] if told else ([], [])
        changed = {name.decode(): _readable(data) if data else None for name, data in zip(names, stored, strict=True)}
        return News(last.decode(), mark.decode(), False, changed)

    async def records(self) -> AsyncIterator[StoredTenant]:
        """Every record, in no order, a page at a time; one that changes meanwhile may come twice."""
        cursor = b"0"
        while True:
            reply = await self._command("HSCAN", BOOK, cursor, "COUNT", _PAGE)
            cursor, pairs = cast("tuple[bytes, list[bytes]]", reply)
            for data in pairs[1::2]:
                if (record := _readable(data)) is not None:
                    yield record
            if cursor == b"0":
                return

    async def find(self, tenant: str) -> Found:
        """One tenant's record."""
        stored = await self._command("HGET", BOOK, tenant)
        return Found(decoded(stored), stored) if isinstance(stored, bytes) else Found(None)

    async def mark(self) -> str:
        """What tells the secret of the keys; "": there is no key yet."""
        mark = await self._command("GET", MARK)
        return mark.decode() if isinstance(mark, bytes) else ""

    async def put(self, tenant: str, found: Found, after: StoredTenant | None, note: Note, mark: str = "") -> bool:
        """Put a record in the place of the one found, with an entry about it; false if that is another by now.

        `mark`: of the secret with which a key was made. Raises `OtherSecret`.
        """
        record = b"" if after is None else encoded(after)
        said = msgspec.json.encode(note.detail)
        args = (tenant, found.stored, record, mark, note.who, note.via, note.action, said, secrets.token_hex(8))
        reply = await self._store.run(_WRITE, _KEYS, args, _SECONDS)
        if reply == -1:
            raise OtherSecret
        return reply != 0

    async def changes(self, tenant: str | None = None, most: int | None = 100) -> list[Entry]:
        """The last changes, the newest first, of one tenant or of all; `most` None: every one."""
        found: list[Entry] = []
        end = "+"
        while page := cast("list[Any]", await self._command("XREVRANGE", CHANGES, end, "-", "COUNT", _PAGE)):
            entries = [_entry(id, fields) for id, fields in page]
            found += [entry for entry in entries if tenant in (None, entry.tenant)]
            if most is not None and len(found) >= most:
                break
            end = f"({entries[-1].id}"
        return found[:most]

    async def _command(self, *parts: str | bytes | int) -> object:
        return await self._store.command(*parts, key=BOOK, timeout_seconds=_SECONDS)


def _readable(data: bytes) -> StoredTenant | None:
    """A record that is none counts as absent: it must not keep all others from being read."""
    try:
        return decoded(data)
    except msgspec.DecodeError:
        log(logging.WARNING, "a record of a tenant in the store cannot be read")
        return None


def _entry(id: bytes, fields: list[bytes]) -> Entry:
    """An entry as it is told; what somebody else put there is told as far as it can be read."""
    found = {name.decode(errors="replace"): value for name, value in zip(fields[::2], fields[1::2], strict=True)}
    tenant, who, via, action = [
        found.get(name, b"").decode(errors="replace") for name in ("tenant", "who", "via", "action")
    ]
    try:
        detail = msgspec.json.decode(found.get("detail", b"{}"), type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError):
        detail = {}
    return Entry(id.decode(), int(id.partition(b"-")[0]), tenant, who, via, action, detail)
