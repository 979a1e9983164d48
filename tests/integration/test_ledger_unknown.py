"""Reservations of which nobody knows whether the store made them: charged once, whatever has happened."""

import pytest
from msgspec.structs import replace

from bench import kept
from budgets.ledger import Amounts, Grant, Scope, reserve, reserving, settle
from budgets.limit import Limit
from budgets.record import Entry, Record, stream_of
from gateway.store import Store

TOKENS = Limit(name="tokens", dimension="total_tokens", amount=1000, every="month")
LANES = Limit(name="lanes", dimension="concurrent_calls", amount=5)
SCOPE = Scope("acme", (TOKENS, LANES))
ASKED: Amounts = {"prefill_tokens": 60, "total_tokens": 100}
USED: Amounts = {"prefill_tokens": 60, "total_tokens": 70}
SPACE = "kvgate:1:{acme}"
STREAM = stream_of("acme", None)
ENTRY = Entry(STREAM, 10, (Record("acme", "main", "s", "demo", "any", "ok", "engine", 60, 0, 10, 1),))


async def in_use(store: Store) -> int:
    return sum((await kept.in_use(store)).values()) // 10**6


async def asked(store: Store) -> Grant:
    """A grant by this worker alone, made for a moment that the server agrees with."""
    now = await store.command("TIME")
    assert isinstance(now, list)
    grant, _ = reserving(SCOPE, ASKED, float(now[0]), id="request-1")
    return replace(grant, local=True)


async def made(store: Store, grant: Grant) -> None:
    """The store carries out the reservation; its answer is lost."""
    _, step = reserving(SCOPE, ASKED, grant.at_seconds, id=grant.id)
    await store.run(step.script, step.keys, step.args)


async def expired(store: Store, grant: Grant) -> None:
    """The lease runs out, and another call closes it."""
    await kept.run_out(store, grant.id)
    other = await reserve(store.run, SCOPE, {}, grant.at_seconds)
    assert isinstance(other, Grant)
    await settle(store.run, other, {})


@pytest.mark.parametrize("reserved", [False, True])
async def test_it_is_charged_once_whether_it_was_reserved_or_not(store: Store, reserved: bool) -> None:
    grant = await asked(store)
    if reserved:
        await made(store, grant)
        assert await in_use(store) == 100
    assert await settle(store.run, grant, USED, ENTRY)
    assert not await settle(store.run, grant, USED, ENTRY)
    assert await in_use(store) == 70
    assert await store.command("XLEN", STREAM) == 1
    assert await store.command("ZCARD", f"{SPACE}:slots:lanes:concurrent_calls") == 0


async def test_a_reservation_that_comes_after_its_settling_takes_nothing(store: Store) -> None:
    grant = await asked(store)
    assert await settle(store.run, grant, USED)
    await made(store, grant)
    assert await in_use(store) == 70
    assert await store.command("ZCARD", f"{SPACE}:slots:lanes:concurrent_calls") == 0
    assert not await settle(store.run, grant, USED), "that would be a second charge"
    await expired(store, grant)
    assert await in_use(store) == 70


async def test_a_reservation_that_comes_twice_takes_once(store: Store) -> None:
    grant = await asked(store)
    for _ in range(2):
        await made(store, grant)
    assert await in_use(store) == 100
    assert await store.command("ZCARD", f"{SPACE}:slots:lanes:concurrent_calls") == 1


async def test_one_that_was_closed_as_dead_is_charged_what_it_used(store: Store) -> None:
    grant = await asked(store)
    await made(store, grant)
    await expired(store, grant)
    assert await in_use(store) == 60, "its prompt"
    assert await settle(store.run, grant, USED)
    assert not await settle(store.run, grant, USED)
    assert await in_use(store) == 70


async def test_the_mark_goes_after_the_time_of_grace(store: Store) -> None:
    grant = await asked(store)
    assert await settle(store.run, grant, USED)
    score = await store.command("ZSCORE", kept.keys_of("acme")[1], grant.id)
    assert isinstance(score, bytes)
    assert 3_590 < float(score) / 1e6 - grant.at_seconds < 3_610
    await expired(store, grant)
    assert await kept.leases(store) == []
