"""How much text a tenant has in the store: counted exactly, bounded, the longest unused goes, on a real server."""

import asyncio
import random

import pytest

from budgets.script import Script, Step, both
from gateway.metrics import Metrics
from gateway.store import Store
from gateway.texts import Counted, Place, Text, Texts, counted, counting

ACME, CAP = Place("acme"), 100
WRITE = Script("write", "return redis.call('SET', KEYS[1], string.rep('x', ARGV[1]))")


async def count(store: Store, *texts: Text, cap: int = CAP, place: Place = ACME) -> Counted:
    step = counting(place, texts, cap)
    return step.read(await store.run(step.script, step.keys, step.args))


async def put(store: Store, member: str, size: int, cap: int = CAP) -> Counted:
    """A text written and counted in one run, and what went for it deleted."""
    writing = Step(WRITE, [ACME.key(member)], [size], lambda reply: reply)
    step = both(writing, counting(ACME, [Text(member, size, 60)], cap))
    _, found = step.read(await store.run(step.script, step.keys, step.args))
    await Texts(store, Metrics()).settle(ACME, found)
    return found


async def listed(store: Store) -> list[str]:
    found = await store.command("ZRANGE", ACME.texts[0], 0, -1, key=ACME.texts[0])
    assert isinstance(found, list)
    return [member.decode() for member in found]


async def later() -> None:
    """To the next millisecond, by which the store tells what was used before what."""
    await asyncio.sleep(0.003)


async def test_bytes_are_counted_as_texts_grow_shrink_and_go(store: Store) -> None:
    assert await count(store, Text("o:a", 30, 60), Text("o:b", 20, 60)) == Counted(50)
    assert await count(store, Text("o:a", 10, 60)) == Counted(30)
    assert await count(store, Text("o:a", None, 60)) == Counted(30)
    assert await count(store, Text("o:b", 0, 60)) == Counted(10)
    assert await count(store, Text("o:c", None, 60)) == Counted(10), "never heard of"
    assert await count(store, Text("o:a", 0, 60)) == Counted(0)
    assert await store.command("EXISTS", *ACME.texts, key=ACME.texts[0]) == 0


async def test_above_the_cap_the_longest_unused_goes(store: Store) -> None:
    for member in "abc":
        await put(store, f"o:{member}", 30)
        await later()
    await count(store, Text("o:a", None, 60))
    assert await put(store, "o:d", 30) == Counted(90, ("o:b",))
    assert await store.command("EXISTS", ACME.key("o:b"), key=ACME.key("o:b")) == 0
    assert await put(store, "o:e", 80) == Counted(80, ("o:c", "o:a", "o:d"))
    assert await listed(store) == ["o:e"]


async def test_a_text_above_the_cap_takes_all_and_stays_not(store: Store) -> None:
    await put(store, "o:a", 30)
    await later()
    assert await put(store, "o:b", CAP + 1) == Counted(0, ("o:a", "o:b"))
    assert await store.command("EXISTS", ACME.key("o:b"), key=ACME.key("o:b")) == 0


async def test_what_has_ended_does_not_count(store: Store) -> None:
    await count(store, Text("o:a", 60, 0.001), Text("o:b", 30, 60))
    await later()
    assert await count(store, Text("o:c", 60, 60)) == Counted(90), "nothing had to go for it"


async def test_tenants_have_caps_of_their_own(store: Store) -> None:
    await count(store, Text("o:a", 90, 60))
    assert await count(store, Text("o:a", 90, 60), place=Place("zeta")) == Counted(90)
    within = Place("acme", "house")
    assert await count(store, Text("o:a", 90, 60), place=within) == Counted(90)
    assert within.key("o:a") == "kvgate:1:{house}:tenant:acme:o:a"


async def test_what_is_back_on_the_list_is_not_deleted(store: Store) -> None:
    """Somebody took it off the list, and before it was deleted somebody else wrote it again."""
    await put(store, "o:a", 60)
    gone = await count(store, Text("o:b", 60, 60))
    assert gone.evicted == ("o:a",)
    await put(store, "o:a", 10)
    await Texts(store, Metrics()).drop(ACME, gone.evicted)
    assert await store.command("EXISTS", ACME.key("o:a"), key=ACME.key("o:a")) == 1


@pytest.mark.parametrize("seed", range(3))
async def test_many_writers_at_once_keep_the_sum(store: Store, seed: int) -> None:
    """The list, its bytes and the texts themselves agree at the end, and the cap held all the time."""
    dice = random.Random(seed)
    found = await asyncio.gather(*(put(store, f"o:{dice.randrange(20)}", dice.randrange(1, 40)) for _ in range(300)))
    assert max(each.stored_bytes for each in found) <= CAP
    members = await listed(store)
    sizes = [await store.command("STRLEN", ACME.key(member), key=ACME.key(member)) for member in members]
    assert sum(size for size in sizes if isinstance(size, int)) == (await count(store)).stored_bytes <= CAP
    kept = await store.command("KEYS", ACME.key("o:*"))
    assert isinstance(kept, list) and len(kept) == len(members)


async def test_a_script_of_its_own_may_count_inside(store: Store) -> None:
    body = "text_used(KEYS, 1, ARGV[1], 7, 60000)\nreturn {texts_bounded(KEYS, 1, 100)}"
    library = Script.load("gateway", "texts")
    script = Script("own", f"{library.source}\n{body}")
    assert counted(await store.run(script, ACME.texts, ["o:a"])) == Counted(7)
