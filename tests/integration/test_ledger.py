"""The ledger on a real server: exactly as much is admitted as the limit holds, whoever asks and whatever dies."""

import asyncio
import itertools
import random

import pytest
from redis.crc import key_slot

from bench import kept
from budgets.ledger import Amounts, Balance, Denied, Grant, Scope, reserve, reserving, settle, settling
from budgets.limit import Limit
from budgets.script import Script, both
from gateway import embedded
from gateway.digests import Chain
from gateway.sessions import Progress, SessionLimits, Sessions, loading, saving
from gateway.store import Store
from gateway.tasks import Tasks
from tests.conftest import PATIENT

BUCKETS, LEASES, HELD, STALE, _ = kept.keys_of("acme")
# Refills so slowly that a test does not see it.
REQUESTS = Limit(name="calls", dimension="requests", amount=10, per_seconds=1e6)
TOKENS = Limit(name="tokens", dimension="total_tokens", amount=1000, per_seconds=1e6)
REQUESTS_MANY = Limit(name="many", dimension="requests", amount=1000, per_seconds=1e6)
SHADOW = Limit(name="trial", dimension="requests", amount=2, per_seconds=1e6, mode="shadow")
ONE: Amounts = {"requests": 1, "prefill_tokens": 60, "total_tokens": 100}


def scope(*limits: Limit, tenant: str = "acme") -> Scope:
    return Scope(tenant, limits)


async def grant(store: Store, limits: Scope, amounts: Amounts = ONE) -> Grant:
    answer = await reserve(store.run, limits, amounts)
    assert isinstance(answer, Grant), answer
    return answer


async def denied(store: Store, limits: Scope, amounts: Amounts = ONE) -> Denied:
    answer = await reserve(store.run, limits, amounts)
    assert isinstance(answer, Denied), answer
    return answer


async def used(store: Store, limit: Limit) -> float:
    """Units in use, as stored."""
    found = (await kept.in_use(store)).get(f"{limit.label}:{limit.dimension}", 0)
    scale = 1 if limit.dimension == "kv_read_bytes" else 1e6
    return round(found / scale, 3)


async def test_what_is_reserved_counts_and_what_is_settled_replaces_it(store: Store) -> None:
    limits = scope(REQUESTS, TOKENS)
    first = await grant(store, limits)
    assert [(b.label, b.remaining) for b in first.balances] == [("calls", 9), ("tokens", 900)]
    assert await settle(store.run, first, {"requests": 1, "total_tokens": 30})
    assert await used(store, TOKENS) == 30
    assert await used(store, REQUESTS) == 1


async def test_settling_twice_charges_once(store: Store) -> None:
    one = await grant(store, scope(TOKENS))
    results = await asyncio.gather(*(settle(store.run, one, {"total_tokens": 70}) for _ in range(10)))
    assert results == [True] + [False] * 9
    assert await used(store, TOKENS) == 70


async def test_all_limits_or_none(store: Store) -> None:
    await grant(store, scope(TOKENS), {"total_tokens": 950})
    answer = await denied(store, scope(REQUESTS, TOKENS))
    assert (answer.label, answer.dimension, answer.limit) == ("tokens", "total_tokens", 1000)
    assert (answer.used, answer.requested) == (950, 100)
    assert await used(store, REQUESTS) == 0
    assert await used(store, TOKENS) == 950
    assert len(await kept.leases(store)) == 1


async def test_the_limit_that_takes_longest_to_pass_is_named(store: Store) -> None:
    quick = Limit(name="quick", dimension="requests", amount=1, per_seconds=1)
    slow = Limit(name="slow", dimension="requests", amount=1, per_seconds=86_400)
    for order in ((quick, slow), (slow, quick)):
        await store.command("FLUSHALL")
        await grant(store, scope(*order), {"requests": 1})
        answer = await denied(store, scope(*order), {"requests": 1})
        assert answer.label == "slow"
        assert 86_000 < answer.retry_after_seconds <= 86_400


async def test_the_wait_that_is_named_is_enough_and_less_is_not(store: Store) -> None:
    limit = Limit(name="rate", dimension="total_tokens", amount=600, per_seconds=60_000, burst=900)
    await settle(store.run, await grant(store, scope(limit), {}), {"total_tokens": 800})
    answer = await denied(store, scope(limit), {"total_tokens": 500})
    assert 39_900 < answer.retry_after_seconds <= 40_000
    await kept.pass_time(store, answer.retry_after_seconds - 100)
    assert 90 < (await denied(store, scope(limit), {"total_tokens": 500})).retry_after_seconds <= 100
    await kept.pass_time(store, 100)
    assert (await grant(store, scope(limit), {"total_tokens": 500})).balances[0].remaining == 0


async def test_when_it_resets_is_when_nothing_is_in_use(store: Store) -> None:
    limit = Limit(name="rate", dimension="requests", amount=10, per_seconds=1000)
    balance = (await grant(store, scope(limit), {"requests": 5})).balances[0]
    assert balance == Balance("rate", "requests", "enforce", 10, 5, 500.0)
    now, _ = await server_time(store)
    assert 400 < (await denied(store, scope(limit), {"requests": 6})).resets_at - now <= 501


async def server_time(store: Store) -> tuple[int, int]:
    reply = await store.command("TIME")
    assert isinstance(reply, list)
    return int(reply[0]), int(reply[1])


async def test_a_call_larger_than_the_bucket_passes_when_it_is_full_and_leaves_debt(store: Store) -> None:
    limit = Limit(name="small", dimension="total_tokens", amount=100, per_seconds=100)
    huge: Amounts = {"total_tokens": 700}
    assert (await grant(store, scope(limit), huge)).balances[0].remaining == 0
    answer = await denied(store, scope(limit), {"total_tokens": 1})
    assert (answer.used, answer.limit) == (700, 100)
    assert 595 < answer.retry_after_seconds <= 601
    await kept.pass_time(store, 690)
    assert (await denied(store, scope(limit), huge)).retry_after_seconds > 0
    await kept.pass_time(store, 20)
    await grant(store, scope(limit), huge)


async def test_a_call_that_reserves_nothing_still_meets_the_limit(store: Store) -> None:
    one = await grant(store, scope(TOKENS), {})
    await settle(store.run, one, {"total_tokens": 1500})
    assert (await denied(store, scope(TOKENS), {})).used == 1500
    exactly_full = Limit(name="full", dimension="decode_tokens", amount=50, per_seconds=1e9)
    await grant(store, scope(exactly_full), {"decode_tokens": 50})
    assert (await denied(store, scope(exactly_full), {})).label == "full"


async def test_a_limit_in_shadow_counts_and_refuses_nothing(store: Store) -> None:
    limits = scope(SHADOW, REQUESTS)
    assert [(await grant(store, limits)).would_deny for _ in range(4)] == [(), (), ("trial",), ("trial",)]
    assert await used(store, SHADOW) == 4


async def test_a_refund_never_fills_more_than_the_bucket(store: Store) -> None:
    limit = Limit(name="rate", dimension="total_tokens", amount=100, per_seconds=100)
    one = await grant(store, scope(limit), {"total_tokens": 100})
    await kept.pass_time(store, 1000)
    await settle(store.run, one, {"total_tokens": 0})
    assert await used(store, limit) == 0


async def test_time_that_passed_counts_before_what_is_settled(store: Store) -> None:
    limit = Limit(name="rate", dimension="total_tokens", amount=100, per_seconds=100)
    one = await grant(store, scope(limit), {"total_tokens": 100})
    await kept.pass_time(store, 200)
    await settle(store.run, one, {"total_tokens": 150})
    assert await used(store, limit) == 50


async def test_the_lease_of_a_dead_worker_keeps_the_prompt_and_gives_back_the_rest(store: Store) -> None:
    dead = await grant(store, scope(REQUESTS, TOKENS))
    await kept.pass_time(store, 901)
    await grant(store, scope(REQUESTS), {})
    assert await used(store, TOKENS) == pytest.approx(60, abs=2)
    assert await used(store, REQUESTS) == pytest.approx(1, abs=0.1)
    await settle(store.run, dead, {"requests": 1, "total_tokens": 130})
    assert await used(store, TOKENS) == pytest.approx(130, abs=2), "a worker that was only late pays what it used"
    assert len(await kept.leases(store)) == 1


async def test_a_reservation_nobody_settles_goes_in_the_end(store: Store) -> None:
    await grant(store, scope(TOKENS))
    for _ in range(2):
        await kept.pass_time(store, 3601 + 901)
        await grant(store, scope(REQUESTS), {})
    assert [lease.state for lease in await kept.leases(store)] == ["runs", "closed"]


async def test_tenants_do_not_share(store: Store) -> None:
    one = Limit(name="one", dimension="requests", amount=1, per_seconds=1e6)
    await grant(store, scope(one))
    await grant(store, scope(one, tenant="other"))
    await denied(store, scope(one))


async def test_no_limit_no_call(store: Store) -> None:
    before = store.counters.calls
    one = await grant(store, scope())
    assert not await settle(store.run, one, ONE)
    assert store.counters.calls == before


async def test_a_local_grant_is_charged_when_the_store_is_back(store: Store) -> None:
    local = Grant("made-while-away", scope(TOKENS), ONE, local=True)
    assert local.balances == ()
    assert await settle(store.run, local, {"total_tokens": 40})
    assert await used(store, TOKENS) == 40


async def test_large_byte_counts_stay_exact(store: Store) -> None:
    limit = Limit(name="bandwidth", dimension="kv_read_bytes", amount=8 * 10**15, per_seconds=1e18)
    one = await grant(store, scope(limit), {"kv_read_bytes": 7 * 10**15 + 1})
    assert one.balances[0].remaining == 10**15 - 1
    await settle(store.run, one, {"kv_read_bytes": 3})
    assert await used(store, limit) == 3


async def test_two_hundred_clients_on_two_connections_get_exactly_what_there_is(
    store: Store, valkey: embedded.EmbeddedServer, tasks: Tasks
) -> None:
    other = await Store.connect(valkey.url, tasks, PATIENT)
    try:
        await two_hundred_clients(store, other)
    finally:
        other.close()


async def two_hundred_clients(store: Store, other: Store) -> None:
    stores = itertools.cycle((store, other))
    limits = scope(Limit(name="k", dimension="total_tokens", amount=37 * 100 + 99, per_seconds=1e6), REQUESTS_MANY)
    answers = await asyncio.gather(*(reserve(next(stores).run, limits, ONE) for _ in range(200)))
    admitted = [answer for answer in answers if isinstance(answer, Grant)]
    assert len(admitted) == 37
    assert await used(store, REQUESTS_MANY) == 37
    await asyncio.gather(*(settle(next(stores).run, one, {"requests": 1, "total_tokens": 10}) for one in admitted))
    assert await kept.leases(store) == []
    more = await asyncio.gather(*(reserve(next(stores).run, limits, ONE) for _ in range(200)))
    assert sum(isinstance(answer, Grant) for answer in more) == (37 * 100 + 99 - 370) // 100


@pytest.mark.parametrize("seed", range(5))
async def test_what_is_in_use_is_what_was_settled_and_what_is_reserved(store: Store, seed: int) -> None:
    """Whatever the order and the amounts: the counter is the sum, and nothing above the limit was admitted."""
    generator = random.Random(seed)
    limit = Limit(name="sum", dimension="total_tokens", amount=5_000, per_seconds=1e12)
    settled = 0
    running: list[Grant] = []
    for _ in range(30):
        asked = [generator.randint(0, 900) for _ in range(generator.randint(0, 4))]
        leaving = [running.pop() for _ in range(min(len(running), generator.randint(0, 3)))]
        spent = [generator.randint(0, 700) for _ in leaving]
        answers, _ = await asyncio.gather(
            asyncio.gather(*(reserve(store.run, scope(limit), {"total_tokens": amount}) for amount in asked)),
            asyncio.gather(
                *(settle(store.run, one, {"total_tokens": n}) for one, n in zip(leaving, spent, strict=True))
            ),
        )
        settled += sum(spent)
        admitted = [answer for answer in answers if isinstance(answer, Grant)]
        running += admitted
        reserved = sum(one.amounts["total_tokens"] for one in running)
        assert await used(store, limit) == settled + reserved
        assert all(one.stood is not None and one.stood.in_use[0] <= 5_000 * 10**6 for one in admitted)


async def test_every_key_expires_and_no_debt_before_it_is_worked_off(store: Store) -> None:
    one = await grant(store, scope(REQUESTS, TOKENS))
    for key in (BUCKETS, LEASES, HELD, STALE):
        assert await milliseconds_left(store, key) > (900 + 3600) * 1000
    await settle(store.run, one, {"total_tokens": 5000})
    assert await milliseconds_left(store, BUCKETS) > 4.9e9
    assert await milliseconds_left(store, STALE) > 4.9e9
    for key in (LEASES, HELD):
        assert await milliseconds_left(store, key) > 0, "empty as they are"


async def milliseconds_left(store: Store, key: str) -> int:
    left = await store.command("PTTL", key)
    assert isinstance(left, int)
    return left


async def test_all_keys_share_a_slot() -> None:
    seen: list[str] = []

    async def run(script: Script, keys: object, args: object) -> object:
        assert isinstance(keys, tuple)
        seen.extend(keys)
        return [0, 0, 0, b"\x91\x00", [], 0, [], []] if script.name == "reserve" else 1

    def runs(script: Script, keys: object, args: object) -> "asyncio.Future[object]":
        return asyncio.ensure_future(run(script, keys, args))

    one = await reserve(runs, scope(REQUESTS), ONE)
    assert isinstance(one, Grant)
    await settle(runs, one, ONE)
    assert len(seen) == 12
    assert len({key_slot(key.encode()) for key in seen}) == 1


async def test_a_load_and_a_reserve_are_one_call_and_so_are_settle_and_save(store: Store) -> None:
    limits = scope(REQUESTS)
    for calls in (2, 1):  # the first time a script goes out a second time, with its source
        before = store.counters.calls
        opening = both(loading("acme", "a", Chain([b"d" * 16])), reserving(limits, ONE)[1])
        session, one = opening.read(await store.run(opening.script, opening.keys, opening.args))
        assert store.counters.calls <= before + calls
    assert isinstance(one, Grant)
    closing = both(settling(one, ONE), saving(session, Progress(Chain([b"d" * 16])), SessionLimits()))
    settled, saved = closing.read(await store.run(closing.script, closing.keys, closing.args))
    assert settled
    assert saved.status == "begun"
    assert (await Sessions(store).load("acme", "a", Chain([b"d" * 16]))).status == "known"
