"""Records of older turns in a real store: one writer, its right, its end, and what deletion leaves."""

import asyncio

import pytest

from gateway.counting import Counter
from gateway.metrics import Metrics
from gateway.service import Service
from gateway.sessions import Sessions
from gateway.store import Store
from gateway.summaries import MOST_OF_A_SESSION, Right, Summaries
from gateway.vault import Vault
from tests.unit.gateway.samples import caller, model

NAME, OTHER = b"\x00name" * 3 + b"\xff", b"other-name-of-16"
SERVICE = Service(caller(), model(), (), Counter(len))


@pytest.fixture
def kept(store: Store) -> Summaries:
    return Summaries(store, Vault({"k": b"k" * 32}), Metrics())


async def right_to(kept: Summaries, name: bytes = NAME, lease: float = 60) -> Right:
    right = await kept.take(SERVICE, "one", name, lease)
    assert isinstance(right, Right)
    return right


async def test_of_many_gateways_one_writes_and_all_read(kept: Summaries) -> None:
    found = await asyncio.gather(*(kept.take(SERVICE, "one", NAME, 60) for _ in range(20)))
    (right,) = [each for each in found if isinstance(each, Right)]
    assert [each for each in found if each is not right] == [None] * 19
    assert await kept.put(right, "the record \u00e9", 60)
    assert await kept.take(SERVICE, "one", NAME, 60) == "the record \u00e9"
    assert await kept.read(SERVICE, "one", [OTHER, NAME], 60) == {NAME: "the record \u00e9"}
    assert await kept.read(SERVICE, "another", [NAME], 60) == {}


async def test_a_writer_that_dies_frees_its_place(kept: Summaries) -> None:
    dead = await right_to(kept, lease=0.001)
    await asyncio.sleep(0.01)
    alive = await right_to(kept)
    assert not await kept.put(dead, "late", 60), "and what it still brings is not taken"
    assert await kept.put(alive, "in time", 60)
    assert await kept.read(SERVICE, "one", [NAME], 60) == {NAME: "in time"}


async def test_a_writer_that_fails_gives_its_place_back(kept: Summaries) -> None:
    await kept.give_back(await right_to(kept))
    assert await kept.put(await right_to(kept), "text", 60)


async def test_deletion_takes_all_and_what_is_still_being_written(kept: Summaries, store: Store) -> None:
    assert await kept.put(await right_to(kept), "text", 60)
    writing = await right_to(kept, OTHER)
    assert await kept.forget(SERVICE.place, "one")
    assert not await kept.put(writing, "late", 60)
    assert await kept.read(SERVICE, "one", [NAME, OTHER], 60) == {}
    assert await store.command("KEYS", "kvgate:1:*") == []
    assert not await kept.forget(SERVICE.place, "one")


async def test_no_record_is_begun_for_a_call_that_read_its_session_before_it_was_deleted(
    kept: Summaries, store: Store
) -> None:
    await Sessions(store).delete("acme", "one")
    deleted_ms = int(await store.command("ZSCORE", "kvgate:1:{acme}:deleted", "one"))  # type: ignore[call-overload]
    assert await kept.take(SERVICE, "one", NAME, 60, deleted_ms) is False
    assert await store.command("KEYS", "*one*") == []
    assert isinstance(await kept.take(SERVICE, "one", NAME, 60, deleted_ms + 1), Right), "one that has begun anew"


async def test_a_session_keeps_a_bounded_number_the_newest(kept: Summaries) -> None:
    names = [b"name-number-%04d" % number for number in range(MOST_OF_A_SESSION + 3)]
    for name in names:
        assert await kept.put(await right_to(kept, name), name.decode(), 60)
    found = await kept.read(SERVICE, "one", names, 60)
    assert list(found) == names[3:]


async def test_what_does_not_open_is_not_there_and_is_written_anew(kept: Summaries, store: Store) -> None:
    assert await kept.put(await right_to(kept), "text", 60)
    changed = Summaries(store, Vault({"other": b"o" * 32}), Metrics())
    assert await changed.read(SERVICE, "one", [NAME], 60) == {}
    assert isinstance(await changed.take(SERVICE, "one", NAME, 60), Right)


async def test_no_text_lies_open_in_the_store(kept: Summaries, store: Store) -> None:
    assert await kept.put(await right_to(kept), "a secret of the tenant", 60)
    dump = await store.command("HGETALL", SERVICE.place.key("sum:one"))
    assert isinstance(dump, list) and not any(b"secret" in part for part in dump)
