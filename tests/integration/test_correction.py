"""What an operator says was used is what counts from then on, and running calls settle as if nothing had happened."""

import time

import pytest

from bench import kept
from budgets.correction import Corrected, correcting
from budgets.grant import Denied, Grant, Misdated
from budgets.ledger import reserve, settle
from budgets.limit import Limit
from budgets.scope import Scope
from gateway.store import Store

RATE = Limit(name="tokens", dimension="total_tokens", amount=1_000, per_seconds=1e9)
QUOTA = Limit(name="daily", dimension="total_tokens", amount=1_000, every="day")
BYTES = Limit(name="reads", dimension="kv_read_bytes", amount=10**12, every="month")


async def corrected(store: Store, scope: Scope, used: int) -> Corrected:
    found: Corrected | Misdated = Misdated(time.time())
    while isinstance(found, Misdated):
        step = correcting(scope, used, found.now_seconds)
        found = step.read(await store.run(step.script, step.keys, step.args))
    return found


async def taken(store: Store, scope: Scope, amount: int) -> Grant:
    dimension = scope.limits[0].dimension
    found = await reserve(store.run, scope, {dimension: amount, "prefill_tokens": 0}, time.time())
    assert isinstance(found, Grant)
    return found


async def spent(store: Store, scope: Scope, amount: int) -> None:
    grant = await taken(store, scope, amount)
    assert await settle(store.run, grant, {scope.limits[0].dimension: amount})


@pytest.mark.parametrize("limit", [RATE, QUOTA, BYTES], ids=lambda limit: limit.label)
@pytest.mark.parametrize("organisation", [None, "group"])
async def test_what_was_used_is_replaced(store: Store, limit: Limit, organisation: str | None) -> None:
    scope = Scope("acme", (limit,), organisation=organisation)
    await spent(store, scope, 700)
    assert await corrected(store, scope, 950) == Corrected(700, 0)
    assert await corrected(store, scope, 950) == Corrected(950, 0)
    await taken(store, scope, 50)


async def test_a_call_beyond_what_is_left_then_is_refused(store: Store) -> None:
    scope = Scope("acme", (QUOTA,))
    assert await corrected(store, scope, 951) == Corrected(0, 0)
    refused = await reserve(store.run, scope, {"total_tokens": 50}, time.time())
    assert isinstance(refused, Denied) and refused.used == 951


async def test_more_than_the_limit_is_debt_and_nothing_is_nothing(store: Store) -> None:
    scope = Scope("acme", (QUOTA,))
    assert await corrected(store, scope, 5_000) == Corrected(0, 0)
    assert await corrected(store, scope, 0) == Corrected(5_000, 0)
    await taken(store, scope, 1_000)


async def test_what_running_calls_have_reserved_stays_and_is_settled_as_ever(store: Store) -> None:
    scope = Scope("acme", (QUOTA,))
    await spent(store, scope, 300)
    grant = await taken(store, scope, 200)
    assert await corrected(store, scope, 10) == Corrected(300, 200)
    assert await corrected(store, scope, 10) == Corrected(10, 200)
    assert await settle(store.run, grant, {"total_tokens": 120})
    assert await corrected(store, scope, 0) == Corrected(130, 0)


async def test_what_a_dead_worker_held_does_not_come_off_what_was_said(store: Store) -> None:
    scope = Scope("acme", (RATE,))
    await spent(store, scope, 300)
    await taken(store, scope, 200)
    await kept.pass_time(store, 901)
    assert await corrected(store, scope, 100) == Corrected(300, 0)
    await taken(store, scope, 50)  # closes the dead one's lease
    assert await corrected(store, scope, 0) == Corrected(100, 50)


async def test_other_limits_and_other_owners_are_left_alone(store: Store) -> None:
    both = Scope("acme", (QUOTA, RATE))
    await spent(store, both, 400)
    await corrected(store, Scope("acme", (QUOTA,)), 0)
    assert await corrected(store, Scope("acme", (RATE,)), 0) == Corrected(400, 0)


async def test_a_window_that_is_not_open_by_the_store_s_clock_is_not_touched(store: Store) -> None:
    step = correcting(Scope("acme", (QUOTA,)), 5, 1_000.0)
    found = step.read(await store.run(step.script, step.keys, step.args))
    assert isinstance(found, Misdated) and abs(found.now_seconds - time.time()) < 3_600


async def test_the_keys_have_a_time_to_live(store: Store) -> None:
    scope = Scope("acme", (QUOTA,))
    await corrected(store, scope, 5)
    for key in (scope.keys[0], scope.keys[2]):
        ttl = await store.command("PTTL", key)
        assert isinstance(ttl, int) and ttl > 0
