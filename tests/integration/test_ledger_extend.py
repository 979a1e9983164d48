"""More budget for calls that run: from every elastic limit or from none, and nothing twice."""

import asyncio

import pytest

from bench import kept
from budgets.ledger import Amounts, Denied, Grant, Scope, extending, reserve, settle
from budgets.limit import Limit
from gateway.store import Store

LEASES = kept.keys_of("acme")[1]
TOKENS = Limit(name="tokens", dimension="total_tokens", amount=1000, per_seconds=1e9)
DECODE = Limit(name="decode", dimension="decode_tokens", amount=400, every="month", on_exceed="stop")
STRICT = Limit(name="strict", dimension="total_tokens", amount=5000, per_seconds=1e9, hardness="strict")
LANES = Limit(name="lanes", dimension="concurrent_calls", amount=5)
LIMITS = (TOKENS, LANES, DECODE, STRICT)
ONE: Amounts = {"requests": 1, "prefill_tokens": 60, "decode_tokens": 40, "total_tokens": 100}
MORE: Amounts = {"decode_tokens": 150, "total_tokens": 150}


async def granted(store: Store, *limits: Limit) -> Grant:
    answer = await reserve(store.run, Scope("acme", limits), ONE)
    assert isinstance(answer, Grant)
    return answer


async def extended(store: Store, grant: Grant, more: Amounts = MORE) -> Grant | Limit | None:
    step = extending(grant, more)
    return step.read(await store.run(step.script, step.keys, step.args))


async def in_use(store: Store, grant: Grant) -> list[int]:
    stored = await kept.in_use(store)
    return [stored[terms.bucket] // 10**6 for terms in grant.stands.terms if terms.limit.kind != "slots"]


async def test_more_is_taken_from_elastic_limits_and_settled_like_the_rest(store: Store) -> None:
    grant = await granted(store, *LIMITS)
    longer = await extended(store, grant)
    assert longer == grant
    assert await in_use(store, grant) == [250, 190, 100]
    (lease,) = await kept.leases(store)
    assert [amount // 10**6 for amount in lease.took.values()] == [250, 190, 100]
    assert [amount // 10**6 for amount in lease.kept.values()] == [210, 150, 100], "with what it had generated"
    assert await settle(store.run, grant, {"decode_tokens": 120, "total_tokens": 180})
    assert not await settle(store.run, grant, ONE)
    assert await in_use(store, grant) == [180, 120, 180]


async def test_what_one_limit_refuses_no_other_gives(store: Store) -> None:
    grant = await granted(store, *LIMITS)
    assert await extended(store, grant, {"decode_tokens": 361, "total_tokens": 361}) == DECODE
    assert await extended(store, grant, {"decode_tokens": 1, "total_tokens": 901}) == TOKENS
    stopping = await extended(store, grant, {"decode_tokens": 901, "total_tokens": 901})
    assert stopping == DECODE, "of several, one that stops"
    assert await in_use(store, grant) == [100, 40, 100]
    assert await settle(store.run, grant, {"decode_tokens": 500, "total_tokens": 560}), "its lease holds as before"
    assert await in_use(store, grant) == [560, 500, 560]


async def test_what_refuses_nothing_gives_in_shadow(store: Store) -> None:
    shadow = TOKENS.model_copy(update={"mode": "shadow"})
    assert isinstance(await extended(store, await granted(store, shadow), {"total_tokens": 10_000}), Grant)


@pytest.mark.parametrize("settled", [True, False])
async def test_a_lease_that_is_gone_is_not_extended(store: Store, settled: bool) -> None:
    grant = await granted(store, *LIMITS)
    if settled:
        await settle(store.run, grant, ONE)
    else:
        await kept.run_out(store, grant.id)
        await granted(store, *LIMITS)  # closes it
    before = await in_use(store, grant)
    assert await extended(store, grant) is None
    assert await in_use(store, grant) == before


async def test_both_leases_are_renewed_whether_there_is_more_or_not(store: Store) -> None:
    too_much: Amounts = {"decode_tokens": 9_999}
    for more in (MORE, too_much):
        await store.command("FLUSHALL")
        grant = await granted(store, *LIMITS)
        keys = (LEASES, "kvgate:1:{acme}:slots:lanes:concurrent_calls")
        for key in keys:
            await store.command("ZADD", key, 5, grant.id)
        await extended(store, grant, more)
        for key in keys:
            deadline = await store.command("ZSCORE", key, grant.id)
            assert isinstance(deadline, bytes) and float(deadline) > 1e15


async def test_what_a_dead_call_had_generated_stays_charged(store: Store) -> None:
    longer = await extended(store, await granted(store, TOKENS))
    assert isinstance(longer, Grant)
    await kept.run_out(store, longer.id)
    other = await granted(store, TOKENS)
    await settle(store.run, other, {})
    assert await in_use(store, longer) == [60 + 150]


async def test_many_that_grow_at_once_stay_within_the_limit(store: Store) -> None:
    grants = [await granted(store, TOKENS) for _ in range(4)]
    found = await asyncio.gather(*(extended(store, grant, {"total_tokens": 250}) for grant in grants))
    assert sum(isinstance(each, Grant) for each in found) == 2
    assert await in_use(store, grants[0]) == [900]
    assert isinstance(await reserve(store.run, Scope("acme", (TOKENS,)), {"total_tokens": 101}), Denied)
