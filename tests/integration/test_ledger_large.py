"""Counters beyond what 64 bits hold: four busy GPUs read more bytes of KV in a month than that."""

import time

import pytest

from budgets.allowance import LocalAllowance
from budgets.correction import Corrected, correcting
from budgets.grant import Denied, Grant
from budgets.ledger import reserve, settle
from budgets.limit import Limit
from budgets.scope import Scope
from budgets.statement import Account, stating
from gateway.store import Store

HUGE = 2**65
READS = Limit(name="reads", dimension="kv_read_bytes", amount=2**70, every="month")
CALLS = Limit(name="calls", dimension="requests", amount=2**70, every="month")


async def corrected(store: Store, limit: Limit, used: int) -> Corrected:
    step = correcting(Scope("acme", (limit,)), used, time.time())
    found = step.read(await store.run(step.script, step.keys, step.args))
    assert isinstance(found, Corrected)
    return found


async def account(store: Store, limit: Limit) -> Account:
    step = stating(Scope("acme", (limit,)), time.time())
    found = step.read(await store.run(step.script, step.keys, step.args))
    assert isinstance(found, tuple)
    return found[0]


@pytest.mark.parametrize("limit", [READS, CALLS])
async def test_calls_are_granted_settled_and_told(store: Store, limit: Limit) -> None:
    await corrected(store, limit, HUGE)
    scope, now = Scope("acme", (limit,)), time.time()
    granted = await reserve(store.run, scope, {"kv_read_bytes": 2**40, "requests": 1}, now)
    assert isinstance(granted, Grant)
    (left,) = granted.balances
    assert 0 < left.remaining < 2**70
    assert await settle(store.run, granted, {"kv_read_bytes": 2**40, "requests": 1})
    stands = await account(store, limit)
    assert stands.used >= HUGE and stands.remaining <= 2**70 - HUGE and stands.reserved == 0
    assert (await corrected(store, limit, 0)).before == stands.used


@pytest.mark.parametrize("limit", [READS, CALLS])
async def test_what_headers_say_of_the_tightest_limit_is_not_less_than_nothing(store: Store, limit: Limit) -> None:
    await corrected(store, limit, HUGE)
    granted = await reserve(store.run, Scope("acme", (limit,)), {"kv_read_bytes": 1, "requests": 1}, time.time())
    assert isinstance(granted, Grant) and granted.stood is not None
    assert all(in_use > 0 for _, in_use in granted.stood.shown)


async def test_a_refusal_says_how_much_was_used(store: Store) -> None:
    spent = READS.model_copy(update={"amount": 2**64})
    await corrected(store, spent, HUGE)
    refused = await reserve(store.run, Scope("acme", (spent,)), {"kv_read_bytes": 1}, time.time())
    assert isinstance(refused, Denied)
    assert refused.used == HUGE


async def test_one_such_counter_does_not_end_what_others_may_do_while_the_store_is_away(store: Store) -> None:
    await corrected(store, READS, HUGE)
    now, allowance = time.time(), LocalAllowance()
    granted = await reserve(store.run, Scope("acme", (READS,)), {"kv_read_bytes": 1}, now)
    assert isinstance(granted, Grant)
    allowance.heard(granted)
    other = await reserve(store.run, Scope("zeta", (READS,)), {"kv_read_bytes": 1}, now)
    assert isinstance(other, Grant)
    assert isinstance(allowance.decide(other, 1.0, now), Grant)
