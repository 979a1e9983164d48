"""Whatever operators do and whatever becomes of the store, a reader of news ends up with what stands in the book."""

import random

import pytest

from gateway.roster import Following, Roster
from gateway.store import Store
from gateway.tenant_book import BOOK, CHANGES, LAST, Note, TenantBook
from gateway.tenant_record import StoredTenant

NAMES = [f"tenant-{number}" for number in range(8)]
NOTE = Note("ann", "cli", "tenant changed", {})


class Past:
    """A state of the store that it may fall back to, as when a replica takes over that had not heard of the rest."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._kept: dict[str, bytes] = {}

    async def keep(self) -> None:
        dumps = {key: await self._store.command("DUMP", key) for key in (BOOK, CHANGES, LAST)}
        self._kept = {key: dump for key, dump in dumps.items() if isinstance(dump, bytes)}

    async def come_back(self) -> None:
        await self._store.command("FLUSHALL")
        for key, dump in self._kept.items():
            await self._store.command("RESTORE", key, "0", dump)


async def change(book: TenantBook, store: Store, past: Past, rng: random.Random) -> None:
    match rng.choices(["put", "delete", "trim", "flush", "keep", "come back"], [60, 20, 8, 4, 8, 8])[0]:
        case "put":
            name = rng.choice(NAMES)
            record = StoredTenant(name, created_at=rng.random())
            assert await book.put(name, await book.find(name), record, NOTE)
        case "delete":
            name = rng.choice(NAMES)
            assert await book.put(name, await book.find(name), None, NOTE)
        case "trim":
            await store.command("XTRIM", CHANGES, "MAXLEN", str(rng.randint(0, 3)))
        case "flush":
            await store.command("FLUSHALL")
        case "keep":
            await past.keep()
        case "come back":
            await past.come_back()


@pytest.mark.parametrize("seed", range(8))
async def test_a_reader_knows_what_stands_in_the_book(store: Store, seed: int) -> None:
    rng, book, known = random.Random(seed), TenantBook(store), Roster()
    past = Past(store)
    following = Following(book, known, b"s" * 32)
    seen: dict[str, StoredTenant] = {}
    for _ in range(60):
        for _ in range(rng.randint(0, 4)):
            await change(book, store, past, rng)
        for name in await following.look():
            record = known.records.get(name)
            if record is None:
                seen.pop(name, None)
            else:
                seen[name] = record
        stands = {record.name: record async for record in book.records()}
        assert known.records == stands == seen
