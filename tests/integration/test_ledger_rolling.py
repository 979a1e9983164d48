"""Gateways of two versions on one store, as while a deployment is under way: neither misreads the other.

`lua_before` holds the scripts of the version before buckets and leases were binary, as that version ran them.
"""

from pathlib import Path

import msgspec
import pytest

from bench import kept
from budgets.ledger import Amounts, Denied, Grant, Scope, reserve, settle
from budgets.limit import Limit
from budgets.script import Script
from budgets.statement import stating
from gateway.store import Store

BEFORE = Path(__file__).parent / "lua_before"
SPACE = "kvgate:1:{acme}"
GRACE_US = 3600 * 10**6
TOKENS = Limit(name="tokens", dimension="total_tokens", amount=1000, per_seconds=1e9)
LANES = Limit(name="lanes", dimension="concurrent_calls", amount=2)
SCOPE = Scope("acme", (TOKENS, LANES))
ONE: Amounts = {"prefill_tokens": 60, "total_tokens": 100}
BUCKETS, LEASES, STALE, TERMS, SLOTS = KEYS = (
    *(f"{SPACE}:{part}" for part in ("buckets", "leases", "stale", "terms:before")),
    f"{SPACE}:slots:lanes:concurrent_calls",
)
TOLD = msgspec.msgpack.encode(
    [
        ("tokens:total_tokens", "lanes:concurrent_calls"),
        ("r", "c"),
        (1e9, 2.0),
        (1e9, 0.0),
        (1e15, 0.0),
        (True, True),
        (False, False),
        (1e6, 1.0),
        (1, 0),
        (True, False),
        (2, 0),
    ]
)


def before(name: str) -> Script:
    return Script(name, "\n".join([(BEFORE / f"{part}.lua").read_text() for part in ("buckets", name)]))


async def old_reserve(store: Store, id: str) -> bool:
    asked = msgspec.msgpack.encode((id, 900 * 10**6, GRACE_US, 60, [100], [100]))
    reply = await store.run(before("reserve"), (*KEYS, f"{SPACE}:lease:{id}"), (TOLD, asked))
    assert isinstance(reply, list)
    return bool(reply[0] == 0)


async def old_settle(store: Store, id: str, tokens: int) -> bool:
    used = msgspec.msgpack.encode((id, 0, GRACE_US, [tokens]))
    return await store.run(before("settle"), (*KEYS, f"{SPACE}:lease:{id}"), (b"", used)) == 1


async def old_used(store: Store) -> int:
    stored = await store.command("HGET", BUCKETS, "tokens:total_tokens")
    return int(stored.split()[0]) // 10**6 if isinstance(stored, bytes) else 0


async def new_reserve(store: Store) -> Grant:
    found = await reserve(store.run, SCOPE, ONE)
    assert isinstance(found, Grant)
    return found


async def used(store: Store) -> int:
    return (await kept.in_use(store)).get("tokens:total_tokens", 0) // 10**6


async def test_what_was_used_before_counts_after(store: Store) -> None:
    assert await old_reserve(store, "old") and await old_settle(store, "old", 700)
    step = stating(SCOPE, 0.0)
    stated = step.read(await store.run(step.script, step.keys, step.args))
    assert isinstance(stated, tuple) and stated[0].used == 700
    one = await new_reserve(store)
    assert await used(store) == 800
    refused = await reserve(store.run, SCOPE, {"total_tokens": 201})
    assert isinstance(refused, Denied) and refused.used == 800
    assert await settle(store.run, one, {"total_tokens": 20})
    assert await used(store) == 720


async def test_each_settles_its_own_while_both_run(store: Store) -> None:
    one = await new_reserve(store)
    assert await old_reserve(store, "old")
    assert (await used(store), await old_used(store)) == (100, 100)
    assert isinstance(await reserve(store.run, SCOPE, ONE), Denied), "two calls at once run, of whichever version"
    assert not await old_reserve(store, "another")
    assert await old_settle(store, "old", 70)
    assert await settle(store.run, one, {"total_tokens": 20})
    assert not await old_settle(store, "old", 70)
    assert not await settle(store.run, one, {"total_tokens": 20})
    assert (await used(store), await old_used(store)) == (20, 70)
    assert await store.command("ZCARD", LEASES) == await store.command("ZCARD", SLOTS) == 0
    assert await kept.leases(store) == []


@pytest.mark.parametrize("late", [True, False])
async def test_neither_closes_what_the_other_left(store: Store, late: bool) -> None:
    one = await new_reserve(store)
    assert await old_reserve(store, "old")
    lease = await store.command("GET", f"{SPACE}:lease:old")
    assert isinstance(lease, bytes)
    await store.command("ZADD", LEASES, "XX", 1, lease)
    await kept.run_out(store, one.id)
    for id in ("old", one.id):
        await store.command("ZADD", SLOTS, "XX", 1, id)
    other = await new_reserve(store)
    assert (await used(store), await old_used(store)) == (60 + 100, 100), "its own prompt stays, the rest flows back"
    assert await old_reserve(store, "older")
    assert (await used(store), await old_used(store)) == (160, 60 + 100)
    if late:
        assert await old_settle(store, "old", 130) and await settle(store.run, one, {"total_tokens": 140})
    assert await old_settle(store, "older", 0) and await settle(store.run, other, {})
    assert (await used(store), await old_used(store)) == ((140, 130) if late else (60, 60))
