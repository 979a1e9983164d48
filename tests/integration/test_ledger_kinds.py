"""Quotas, calls at once, strict limits and levels on a real server."""

import asyncio
import time

import msgspec
import pytest
from msgspec.structs import replace

from bench import kept
from budgets.cost import kv_read_bytes
from budgets.ledger import Amounts, Denied, Grant, Misdated, Scope, reserve, reserving, settle
from budgets.limit import Limit
from budgets.scope import Owner
from budgets.window import window
from config.catalogue import model
from gateway.store import Store

BUCKETS, LEASES, HELD, STALE, _ = kept.keys_of("acme")
DAILY = Limit(name="daily", dimension="total_tokens", amount=1000, every="day", time_zone="Europe/Paris")
AT_ONCE = Limit(name="calls", dimension="concurrent_calls", amount=3)
STRICT = Limit(name="strict", dimension="total_tokens", amount=1000, per_seconds=1e9, hardness="strict")
ONE: Amounts = {"requests": 1, "prefill_tokens": 60, "total_tokens": 100}
MOST: Amounts = {"requests": 1, "prefill_tokens": 90, "total_tokens": 390}


def granted(answer: Grant | Denied) -> Grant:
    assert isinstance(answer, Grant), answer
    return answer


def denied(answer: Grant | Denied) -> Denied:
    assert isinstance(answer, Denied), answer
    return answer


async def used(store: Store, bucket: str, tree: str = "acme") -> float | None:
    found = (await kept.in_use(store, tree)).get(bucket)
    return None if found is None else found / 1e6


async def slots(store: Store, limit: str = "calls", space: str = "kvgate:1:{acme}") -> object:
    return await store.command("ZCARD", f"{space}:slots:{limit}:concurrent_calls")


async def nothing_but_terms(store: Store) -> bool:
    keys = await store.command("KEYS", "*")
    assert isinstance(keys, list)
    return all(b":terms:" in key for key in keys)


async def test_a_quota_counts_in_the_window_that_is_open(store: Store) -> None:
    scope, now = Scope("acme", (DAILY,)), time.time()
    today = window("day", "Europe/Paris", now)
    one = granted(await reserve(store.run, scope, ONE, now))
    assert await used(store, f"daily:total_tokens:{today.id}") == 100
    assert one.balances[0].remaining == 900
    assert one.balances[0].reset_seconds == pytest.approx(today.ends_at - now, abs=60)
    await settle(store.run, one, {"total_tokens": 999})
    assert await used(store, f"daily:total_tokens:{today.id}") == 999
    refused = denied(await reserve(store.run, scope, ONE, now))
    assert (refused.kind, refused.used, refused.limit, refused.requested) == ("quota", 999, 1000, 100)
    assert refused.resets_at == pytest.approx(today.ends_at, abs=0.01)
    assert refused.retry_after_seconds == pytest.approx(today.ends_at - now, abs=60)


@pytest.mark.parametrize("skew_seconds", [-40 * 86_400, -86_400, 86_400, 40 * 86_400])
async def test_a_gateway_whose_clock_is_wrong_cannot_reset_a_quota(store: Store, skew_seconds: float) -> None:
    scope, now = Scope("acme", (DAILY,)), time.time()
    _, step = reserving(scope, ONE, now + skew_seconds)
    told = step.read(await store.run(step.script, step.keys, step.args))
    assert isinstance(told, Misdated)
    assert told.now_seconds == pytest.approx(now, abs=60)
    assert await nothing_but_terms(store), "nothing was written"
    for clock in (now, now + skew_seconds):
        granted(await reserve(store.run, scope, {"total_tokens": 500}, clock))
    denied(await reserve(store.run, scope, {"total_tokens": 500}, now + skew_seconds))
    assert len(await kept.in_use(store)) == 1


async def test_what_is_settled_late_goes_to_the_window_it_was_taken_from(store: Store) -> None:
    scope, now = Scope("acme", (DAILY,)), time.time()
    days = [window("day", "Europe/Paris", moment).id for moment in (now - 86_400, now)]
    old = replace(granted(await reserve(store.run, scope, ONE, now)), standing=scope.standing(now - 86_400))
    await store.command("FLUSHALL")
    asked = msgspec.msgpack.encode([1, 900 * 10**6, 3600 * 10**6, 60, 1e8, 1e8])
    await store.command("HSET", HELD, old.id, asked + old.stands.packed)
    await kept.write(store, old.stands, 5e8, 1, (now + 3600) * 1e6)
    await store.command("EXPIRE", BUCKETS, 3600)  # as whoever wrote the bucket has left it
    await store.command("ZADD", LEASES, str(int((now + 900) * 1e6)), old.id)
    assert await settle(store.run, old, {"total_tokens": 130})
    assert await used(store, f"daily:total_tokens:{days[0]}") == 530
    assert await used(store, f"daily:total_tokens:{days[1]}") is None


async def test_a_changed_quota_keeps_what_was_used(store: Store) -> None:
    now = time.time()
    one = granted(await reserve(store.run, Scope("acme", (DAILY,)), ONE, now))
    await settle(store.run, one, {"total_tokens": 700})
    smaller = DAILY.model_copy(update={"amount": 650})
    larger = DAILY.model_copy(update={"amount": 5000})
    assert denied(await reserve(store.run, Scope("acme", (smaller,)), ONE, now)).used == 700
    assert granted(await reserve(store.run, Scope("acme", (larger,)), ONE, now)).balances[0].remaining == 4200


async def test_windows_that_are_over_are_cleared_away(store: Store) -> None:
    scope, now = Scope("acme", (DAILY,)), time.time()
    for days in range(9, 0, -1):
        await kept.write(store, scope.standing(now - days * 86_400), 5, 1, (now + (900 if days == 3 else -10)) * 1e6)
    one = granted(await reserve(store.run, scope, ONE, now))
    names = [scope.standing(now - days * 86_400).terms[0].bucket for days in (3, 0)]
    assert {*await kept.in_use(store)} == {*names}, "what may still be settled stays"
    assert await store.command("HSTRLEN", BUCKETS, " ") == 10 + 24, "but not in what every call reads and writes"
    assert await settle(store.run, one, {"total_tokens": 70})
    assert await kept.in_use(store) == {names[0]: 5, names[1]: 70_000_000}


async def test_owners_of_whose_budgets_nothing_is_in_use_are_cleared_away(store: Store) -> None:
    now, base = time.time(), Scope("acme", ())
    for number in range(10):
        session = base.joined_by((STRICT,), Owner("session", f"{number}", f"session/acme/{number}/"))
        await kept.write(store, session.standing(now), 5, 1, (now + (900 if number == 3 else -10)) * 1e6)
    granted(await reserve(store.run, Scope("acme", (DAILY,)), ONE, now))
    assert {name.rsplit("/", 1)[0] for name in await kept.in_use(store) if "/" in name} == {"session/acme/3"}
    assert await store.command("ZCARD", STALE) == 2


async def test_gateways_that_know_other_limits_lose_nothing_of_each_other(store: Store) -> None:
    """As while a changed file reaches one gateway after another."""
    now, more = time.time(), Limit(name="more", dimension="total_tokens", amount=1000, every="month")
    of_model = Limit(name="of-model", dimension="total_tokens", model="demo", amount=1000, every="month")
    scopes = [Scope("acme", limits) for limits in ((DAILY, STRICT), (more, of_model, DAILY), (STRICT, more))]
    running = [granted(await reserve(store.run, scope, ONE, now)) for scope in (*scopes, *scopes)]
    in_use = {name.split(":")[0]: amount // 10**6 for name, amount in (await kept.in_use(store)).items()}
    assert in_use == {"daily": 400, "strict": 400, "more": 400, "of-model": 200}
    for each in running:
        assert await settle(store.run, each, {"total_tokens": 10})
    in_use = {name.split(":")[0]: amount // 10**6 for name, amount in (await kept.in_use(store)).items()}
    assert in_use == {"daily": 40, "strict": 40, "more": 40, "of-model": 20}


async def test_calls_at_once_are_slots_that_come_back(store: Store) -> None:
    scope = Scope("acme", (AT_ONCE,))
    running = [granted(await reserve(store.run, scope, ONE)) for _ in range(3)]
    assert running[2].balances[0].remaining == 0
    refused = denied(await reserve(store.run, scope, ONE))
    assert (refused.kind, refused.used, refused.limit, refused.requested) == ("slots", 3, 3, 1)
    assert refused.retry_after_seconds == 1
    assert await settle(store.run, running[0], ONE)
    assert not await settle(store.run, running[0], ONE), "a slot is given back once"
    granted(await reserve(store.run, scope, ONE))
    assert await slots(store) == 3


async def test_the_slots_of_a_worker_that_died_run_out(store: Store) -> None:
    scope = Scope("acme", (AT_ONCE,))
    for _ in range(3):
        granted(await reserve(store.run, scope, ONE))
    names = await store.command("ZRANGE", "kvgate:1:{acme}:slots:calls:concurrent_calls", 0, -1)
    assert isinstance(names, list)
    for name in names[:2]:
        await store.command("ZADD", "kvgate:1:{acme}:slots:calls:concurrent_calls", 1, name)
    granted(await reserve(store.run, scope, ONE))
    assert await slots(store) == 2


async def test_a_call_refused_for_its_slot_takes_no_tokens_and_the_other_way_round(store: Store) -> None:
    tokens = Limit(name="tokens", dimension="total_tokens", amount=250, per_seconds=1e9)
    scope = Scope("acme", (AT_ONCE.model_copy(update={"amount": 1}), tokens))
    first = granted(await reserve(store.run, scope, ONE))
    assert denied(await reserve(store.run, scope, ONE)).label == "calls"
    assert await used(store, "tokens:total_tokens") == 100
    await settle(store.run, first, {"total_tokens": 200})
    assert denied(await reserve(store.run, scope, ONE)).label == "tokens"
    assert await slots(store) == 0


async def test_two_hundred_clients_hold_no_more_slots_than_there_are(store: Store) -> None:
    scope = Scope("acme", (AT_ONCE.model_copy(update={"amount": 17}),))
    answers = await asyncio.gather(*(reserve(store.run, scope, ONE) for _ in range(200)))
    assert sum(isinstance(answer, Grant) for answer in answers) == 17


async def test_strict_reserves_the_most_and_is_never_above_its_limit(store: Store) -> None:
    scope = Scope("acme", (STRICT,))
    running = [granted(await reserve(store.run, scope, ONE, 0, MOST)) for _ in range(2)]
    assert await used(store, "strict:total_tokens") == 780
    assert denied(await reserve(store.run, scope, ONE, 0, MOST)).used == 780
    await settle(store.run, running[0], {"total_tokens": 120})
    assert await used(store, "strict:total_tokens") == 510
    await settle(store.run, running[1], {"total_tokens": 2000})  # an engine that does not keep to max_tokens
    assert await used(store, "strict:total_tokens") == 1000


async def test_a_call_that_a_strict_limit_never_lets_pass_is_told_so(store: Store) -> None:
    refused = denied(await reserve(store.run, Scope("acme", (STRICT,)), ONE, 0, {"total_tokens": 1001}))
    assert refused.never
    assert refused.requested == 1001, "what is told is what it was refused for"
    assert await nothing_but_terms(store)


async def test_every_level_is_asked_at_once_or_none_pays(store: Store) -> None:
    def tenant(name: str) -> Scope:
        organisation = Owner("organisation", "group", "organisation/group/")
        scope = Scope(name, (), organisation="group").joined_by((tokens(500),), organisation)
        return scope.joined_by((tokens(300),), scope.owner)

    def tokens(amount: int) -> Limit:
        return Limit(name="t", dimension="total_tokens", amount=amount, per_seconds=1e9)

    a, b = tenant("a"), tenant("b")
    for scope, passing in ((a, 3), (b, 2)):
        answers = await asyncio.gather(*(reserve(store.run, scope, ONE) for _ in range(5)))
        assert sum(isinstance(answer, Grant) for answer in answers) == passing
    assert denied(await reserve(store.run, a, ONE)).owner == "tenant:a"
    assert denied(await reserve(store.run, b, ONE)).owner == "organisation:group"
    levels = [await used(store, f"{level}/t:total_tokens", "group") for level in ("organisation/group", "tenant/a")]
    assert levels == [500, 300]
    assert await used(store, "tenant/b/t:total_tokens", "group") == 200
    key = b.joined_by((tokens(100), AT_ONCE), Owner("key", "k", "key/b/k/"))
    assert denied(await reserve(store.run, key, {"total_tokens": 150})).owner == "organisation:group"
    assert await slots(store, "key/b/k/calls", "kvgate:1:{group}") == 0


async def test_long_contexts_are_refused_to_the_byte_and_as_many_tokens_in_short_ones_are_not(store: Store) -> None:
    llama = model("llama-3.1-8b")
    assert llama is not None
    short, long = 50 * kv_read_bytes(llama.geometry, 1_000, 200), kv_read_bytes(llama.geometry, 50_000, 10_000)
    for spare, passes in ((0, True), (-1, False)):
        reads = Limit(name="reads", dimension="kv_read_bytes", amount=short + long + spare, every="day")
        await store.command("FLUSHALL")
        scope, now = Scope("acme", (reads,)), time.time()
        one = granted(await reserve(store.run, scope, {"kv_read_bytes": short}, now))
        await settle(store.run, one, {"kv_read_bytes": short})
        answer = await reserve(store.run, scope, {"kv_read_bytes": long}, now)
        assert isinstance(answer, Grant) == passes
        if not passes:
            granted(await reserve(store.run, scope, {"kv_read_bytes": short}, now))
