"""Gateways of two versions on one store, as while a deployment is under way: one set of books.

`lua_before` holds the scripts of the version before terms and leases were kept in the store, as that version ran them.
"""

from pathlib import Path

import msgspec
import pytest

from budgets.ledger import Amounts, Denied, Grant, Scope, reserve, settle
from budgets.limit import Limit
from budgets.script import Script
from gateway.store import Store

BEFORE = Path(__file__).parent / "lua_before"
SPACE = "kvgate:1:{acme}"
GRACE_US = 3600 * 10**6
TOKENS = Limit(name="tokens", dimension="total_tokens", amount=1000, per_seconds=1e9)
LANES = Limit(name="lanes", dimension="concurrent_calls", amount=2)
SCOPE = Scope("acme", (TOKENS, LANES))
ONE: Amounts = {"prefill_tokens": 60, "total_tokens": 100}
KEYS = (*(f"{SPACE}:{part}" for part in ("buckets", "leases", "stale")), f"{SPACE}:slots:lanes:concurrent_calls")
TERMS = msgspec.msgpack.encode(
    [
        ("tokens:total_tokens", "r", 1e9, 1e9, 1e15, True, False, 1e6, 1),
        ("lanes:concurrent_calls", "c", 2.0, 0.0, 0.0, True, False, 1.0, 0),
    ]
)


def before(name: str) -> Script:
    return Script(name, "\n".join([(BEFORE / f"{part}.lua").read_text() for part in ("buckets", name)]))


async def old_reserve(store: Store, id: str) -> bytes:
    """A lease, by the script of before; empty if refused."""
    told = msgspec.msgpack.encode(([100], [60], [100]))
    reply = await store.run(before("reserve"), KEYS, (id, 900 * 10**6, GRACE_US, TERMS, told))
    assert isinstance(reply, list)
    return b"" if reply[0] else reply[5]


async def old_settle(store: Store, lease: bytes, tokens: int) -> bool:
    args = (lease, 0, GRACE_US, TERMS, msgspec.msgpack.encode([tokens]))
    return await store.run(before("settle"), KEYS, args) == 1


async def new_reserve(store: Store) -> Grant:
    found = await reserve(store.run, SCOPE, ONE)
    assert isinstance(found, Grant)
    return found


async def used(store: Store) -> int:
    stored = await store.command("HGET", KEYS[0], "tokens:total_tokens")
    assert isinstance(stored, bytes)
    return int(stored.split()[0]) // 10**6


async def die(store: Store, lease: object, id: str) -> None:
    assert isinstance(lease, bytes)
    await store.command("ZADD", KEYS[1], "XX", 1, lease)
    await store.command("ZADD", KEYS[3], "XX", 1, id)


async def test_both_take_from_the_same_limits(store: Store) -> None:
    one = await new_reserve(store)
    lease = await old_reserve(store, "old")
    assert await used(store) == 200
    assert isinstance(await reserve(store.run, SCOPE, ONE), Denied), "two calls at once run"
    assert await old_reserve(store, "another") == b""
    assert await old_settle(store, lease, 70)
    assert await settle(store.run, one, {"total_tokens": 20})
    assert not await old_settle(store, lease, 70)
    assert not await settle(store.run, one, {"total_tokens": 20})
    assert await used(store) == 90
    assert await store.command("ZCARD", KEYS[1]) == await store.command("ZCARD", KEYS[3]) == 0


@pytest.mark.parametrize("late", [True, False])
async def test_a_new_one_closes_what_an_old_one_left(store: Store, late: bool) -> None:
    lease = await old_reserve(store, "old")
    await die(store, lease, "old")
    await settle(store.run, await new_reserve(store), {})
    assert await used(store) == 60, "its prompt"
    if late:
        assert await old_settle(store, lease, 130)
        assert await used(store) == 130


@pytest.mark.parametrize("late", [True, False])
async def test_an_old_one_closes_what_a_new_one_left(store: Store, late: bool) -> None:
    one = await new_reserve(store)
    await die(store, await store.command("GET", SCOPE.lease_key(one.id)), one.id)
    await old_settle(store, await old_reserve(store, "old"), 0)
    assert await used(store) == 60, "its prompt"
    if late:
        assert await settle(store.run, one, {"total_tokens": 130})
        assert not await settle(store.run, one, {"total_tokens": 130})
        assert await used(store) == 130
