"""What a new handle costs the store does not depend on how many its session has; the promise of the others holds."""

from gateway.counting import Counter
from gateway.digests import Chain
from gateway.metrics import Metrics
from gateway.originals import SPARE, Originals, checked
from gateway.service import Service
from gateway.sessions import Sessions, loading
from gateway.store import Store
from gateway.texts import Place
from gateway.vault import Vault
from tests.unit.gateway.samples import caller, model

ACME = Place("acme")
KEPT_SECONDS = 86_400 * (1 + SPARE)
TEXT = "x" * 1_000


def handle(number: int) -> str:
    return f"kvo_{number}"


async def hold(
    store: Store, there: dict[str, float], *shown: str, session: str = "chat", room: int = 10**7, read_ms: int = 0
) -> set[str]:
    """Which of these handles may be shown, of a session that had so many seconds left of some."""
    service = Service(caller(("tiers/standard/session", {"stored_bytes": room})), model(), (), Counter(len))
    originals = Originals(store, Vault(), Metrics())
    return set(await originals.hold(service, session, there, {name: lambda: TEXT for name in shown}, read_ms))


async def commands(store: Store) -> int:
    """How many the server has run, inside scripts too."""
    info = await store.command("INFO", "commandstats")
    assert isinstance(info, bytes)
    lines = [line.split(":calls=")[1] for line in info.decode().splitlines() if ":calls=" in line]
    return sum(int(line.split(",")[0]) for line in lines)


async def listed(store: Store) -> set[str]:
    """The handles whose originals exist."""
    found = await store.command("ZRANGE", ACME.texts[0], 0, -1, key=ACME.texts[0])
    assert isinstance(found, list)
    return {member.decode().removeprefix("o:") for member in found}


async def cost_with(store: Store, others: int) -> int:
    """Commands for a handle more, where so many are shown with it."""
    await store.command("FLUSHALL")
    names = [handle(number) for number in range(others + 1)]
    there = dict.fromkeys(names[:-1], KEPT_SECONDS)
    assert await hold(store, {}, *there) == there.keys()
    before = await commands(store)
    assert await hold(store, there, *names) == set(names)
    return await commands(store) - before


async def test_a_new_handle_costs_the_same_beside_few_and_many(store: Store) -> None:
    await hold(store, {}, "kvo_warm")
    few, many = await cost_with(store, 2), await cost_with(store, 200)
    assert many == few < 40


async def test_only_what_is_due_is_renewed(store: Store) -> None:
    assert await hold(store, {}, "kvo_a", "kvo_b") == {"kvo_a", "kvo_b"}
    for name in "ab":
        key = ACME.key(f"o:kvo_{name}")
        await store.command("PEXPIRE", key, 1_000_000, key=key)
    assert await hold(store, {"kvo_a": 1_000.0, "kvo_b": KEPT_SECONDS}, "kvo_a", "kvo_b") == {"kvo_a", "kvo_b"}
    left = [await store.command("PTTL", key := ACME.key(f"o:kvo_{name}"), key=key) for name in "ab"]
    assert isinstance(left[0], int) and isinstance(left[1], int) and left[0] > 86_400_000 > 1_000_000 >= left[1]


async def test_a_new_handle_pushes_out_what_other_sessions_have_left_before_its_own(store: Store) -> None:
    """Its session shows the others at this moment, whenever they were last renewed."""
    room = 3 * len(TEXT) + 500
    await hold(store, {}, handle(1), room=room)
    await hold(store, {}, handle(2), session="later", room=room)
    await hold(store, {handle(1): KEPT_SECONDS}, handle(1), handle(3), room=room)
    there = dict.fromkeys([handle(1), handle(3)], KEPT_SECONDS)
    assert await hold(store, there, handle(1), handle(3), handle(4), room=room) == {*there, handle(4)}
    assert await listed(store) == {handle(1), handle(3), handle(4)}


async def test_a_handle_that_a_new_one_pushes_out_is_not_promised(store: Store) -> None:
    room = 2 * len(TEXT) + 500
    there = dict.fromkeys([handle(1), handle(2)], KEPT_SECONDS)
    assert await hold(store, {}, *there, room=room) == there.keys()
    held = await hold(store, there, *there, handle(3), room=room)
    assert held <= await listed(store) and len(held) == 2


async def test_a_handle_is_due_by_the_time_of_its_own_session(store: Store) -> None:
    """Another session renewed it last, and may be deleted: what this one was promised is counted for this one."""
    await hold(store, {}, "kvo_a")
    kept = ACME.key("kept:chat")
    await store.command("ZINCRBY", kept, -10_000_000, "kvo_a", key=kept)  # as if it had been shown hours before
    await hold(store, {}, "kvo_a", session="other")
    step = checked(loading("acme", "chat", Chain([b"d" * 16])), ACME, "chat")
    session = step.read(await store.run(step.script, step.keys, step.args))
    assert 86_000 < session.originals["kvo_a"] < KEPT_SECONDS - 9_000


async def test_a_call_that_read_its_session_before_it_was_deleted_keeps_nothing(store: Store) -> None:
    await hold(store, {}, "kvo_a")
    await Sessions(store).delete("acme", "chat")
    await Originals(store, Vault(), Metrics()).forget(ACME, "chat")
    deleted_ms = int(await store.command("ZSCORE", ACME.key("deleted"), "chat"))  # type: ignore[call-overload]
    assert await hold(store, {"kvo_a": 1.0}, "kvo_a", "kvo_b", read_ms=deleted_ms) == set()
    assert await store.command("KEYS", "*:o:*") == []
    assert await hold(store, {}, "kvo_a", read_ms=deleted_ms + 1) == {"kvo_a"}, "one that has begun anew"
