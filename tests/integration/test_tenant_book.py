"""The book of tenants on a real store: what changed is told once, nobody overwrites anybody, all of it is noted."""

import pytest

from gateway.store import Store
from gateway.tenant_book import BOOK, CHANGES, Found, News, Note, OtherSecret, TenantBook
from gateway.tenant_record import StoredTenant

NOTE = Note("ann", "cli", "tenant created", {"settings": {}})


@pytest.fixture
def book(store: Store) -> TenantBook:
    return TenantBook(store)


async def made(book: TenantBook, name: str, **fields: object) -> StoredTenant:
    """A new record in the place of whatever was there."""
    record = StoredTenant(name, **fields)  # type: ignore[arg-type]  # fields of a record
    assert await book.put(name, await book.find(name), record, NOTE)
    return record


async def gone(book: TenantBook, name: str) -> None:
    assert await book.put(name, await book.find(name), None, NOTE)


async def test_an_empty_store_has_no_tenants(book: TenantBook) -> None:
    assert await book.news("") == News("none", "", True, {})
    assert await book.news("none") == News("none", "", False, {})


async def test_a_reader_is_told_what_changed_since_it_looked_last(book: TenantBook) -> None:
    await made(book, "one")
    first = await book.news("")
    assert (first.whole, first.changed) == (True, {"one": StoredTenant("one")})
    assert (await book.news(first.last)).changed == {}
    two = await made(book, "two")
    one = await made(book, "one", disabled=True)
    await made(book, "three")
    await gone(book, "three")
    second = await book.news(first.last)
    assert (second.whole, second.changed) == (False, {"two": two, "one": one, "three": None})
    assert (await book.news(second.last)).changed == {}


async def test_a_reader_that_missed_more_than_is_told_at_once_reads_everything(
    book: TenantBook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tenant_book._MOST_NEWS", 3)
    await made(book, "one")
    known = (await book.news("")).last
    for number in range(4):
        await made(book, f"tenant-{number}")
    told = await book.news(known)
    assert told.whole and len(told.changed) == 5


@pytest.mark.parametrize("how", ["flushed", "trimmed", "another store's"])
async def test_a_reader_whose_last_change_the_store_does_not_know_reads_everything(
    book: TenantBook, store: Store, how: str
) -> None:
    await made(book, "one")
    known = "1-1 word" if how == "another store's" else (await book.news("")).last
    if how == "flushed":
        await store.command("FLUSHALL")
        assert await book.news(known) == News("none", "", True, {})
    await made(book, "two")
    if how == "trimmed":
        await store.command("XTRIM", CHANGES, "MAXLEN", "1")
    told = await book.news(known)
    assert told.whole and told.changed.keys() == ({"two"} if how == "flushed" else {"one", "two"})


async def test_ten_thousand_tenants_are_read_in_pages_and_a_change_among_them_alone(
    book: TenantBook, store: Store
) -> None:
    pairs = [part for number in range(10_000) for part in (f"t{number}", b'{"name":"t%d"}' % number)]
    await store.command("HSET", BOOK, *pairs, key=BOOK)
    await made(book, "t7", disabled=True)
    everything = await book.news("")
    assert len(everything.changed) == 10_000 and everything.changed["t7"] == StoredTenant("t7", disabled=True)
    await made(book, "t8", disabled=True)
    assert (await book.news(everything.last)).changed == {"t8": StoredTenant("t8", disabled=True)}


async def test_a_record_that_cannot_be_read_counts_as_absent(book: TenantBook, store: Store) -> None:
    await made(book, "one")
    await made(book, "two")
    await store.command("HSET", BOOK, "one", b'{"name":', key=BOOK)
    assert (await book.news("")).changed == {"two": StoredTenant("two")}


async def test_a_writer_that_read_something_older_writes_nothing(book: TenantBook) -> None:
    await made(book, "one")
    stale = await book.find("one")
    await made(book, "one", disabled=True)
    for seen in (stale, Found(None)):
        assert not await book.put("one", seen, None, NOTE)
    assert (await book.find("one")).record == StoredTenant("one", disabled=True)
    assert len(await book.changes()) == 2


async def test_keys_of_one_secret_are_not_mixed_with_those_of_another(book: TenantBook) -> None:
    assert await book.put("one", Found(None), StoredTenant("one"), NOTE, "mark-a")
    with pytest.raises(OtherSecret):
        await book.put("two", Found(None), StoredTenant("two"), NOTE, "mark-b")
    assert await book.put("two", Found(None), StoredTenant("two"), NOTE)
    assert (await book.news("")).mark == "mark-a"


async def test_changes_are_told_the_newest_first_of_one_tenant_or_all(book: TenantBook) -> None:
    for name in ("one", "two", "one"):
        await made(book, name, created_at=float(len(await book.changes())))
    assert [entry.tenant for entry in await book.changes()] == ["one", "two", "one"]
    assert [entry.tenant for entry in await book.changes("one", most=1)] == ["one"]
    entry = (await book.changes())[0]
    assert (entry.who, entry.via, entry.action, entry.detail) == ("ann", "cli", "tenant created", {"settings": {}})
    assert entry.at_ms > 1_600_000_000_000


async def test_what_somebody_else_puts_among_the_changes_is_told_as_far_as_it_can_be_read(
    book: TenantBook, store: Store
) -> None:
    await made(book, "one")
    known = (await book.news("")).last
    await store.command("XADD", CHANGES, "*", b"\xff", b"\xff", "detail", b"{", "who", b"\xfe")
    newest = (await book.changes())[0]
    assert (newest.tenant, newest.detail) == ("", {})
    assert (await book.news(known)).changed == {}
    await made(book, "two")
    assert (await book.news(known)).changed == {"two": StoredTenant("two")}
