"""Terms that the store is told once: what it has forgotten it is told again, and nothing else changes for that."""

import pytest

from bench import kept
from budgets.ledger import Amounts, Denied, Grant, Scope, extending, reserve, reserving, settle, settling
from budgets.limit import Dimension, Limit
from budgets.record import Entry, Record, stream_of
from budgets.script import both
from gateway.digests import Chain
from gateway.sessions import Progress, SessionLimits, loading, saving
from gateway.store import Store

TOKENS = Limit(name="tokens", dimension="total_tokens", amount=1000, per_seconds=1e9)
WIDE = Limit(name="wide", dimension="total_tokens", amount=9000, per_seconds=1e9)
TRIAL = Limit(name="trial", dimension="total_tokens", amount=10, per_seconds=1e9, mode="shadow")
CALLS = Limit(name="calls", dimension="requests", amount=10, every="day")
LANES = Limit(name="lanes", dimension="concurrent_calls", amount=5)
LIMITS = (WIDE, TOKENS, TRIAL, LANES, CALLS)
ONE: Amounts = {"requests": 1, "prefill_tokens": 60, "decode_tokens": 40, "total_tokens": 100}
MORE: Amounts = {"decode_tokens": 50, "total_tokens": 50}
CHAIN = Chain([b"d" * 16])
SPACE = "kvgate:1:{acme}"
RECORD = Record("acme", "main", "s", "demo", "any", "ok", "engine", 60, 0, 10, 1)


async def now(store: Store) -> float:
    told = await store.command("TIME")
    assert isinstance(told, list)
    return float(told[0])


async def granted(store: Store, scope: Scope) -> Grant:
    found = await reserve(store.run, scope, ONE, await now(store))
    assert isinstance(found, Grant)
    return found


async def used(store: Store, bucket: str) -> int:
    return (await kept.in_use(store))[bucket] // 10**6


async def forget(store: Store, scope: Scope) -> None:
    assert await store.command("DEL", scope.standing(await now(store)).keys[5]) == 1


async def test_terms_are_sent_once(store: Store) -> None:
    scope = Scope("acme", LIMITS)
    await settle(store.run, await granted(store, scope), ONE)
    before = store.counters.calls
    _, step = reserving(scope, ONE, await now(store))
    assert step.args[0] == b""
    assert isinstance(step.read(await store.run(step.script, step.keys, step.args)), Grant)
    assert store.counters.calls == before + 2, "one for the time, one to reserve"
    left = await store.command("PTTL", scope.standing(await now(store)).keys[5])
    assert isinstance(left, int) and 300_000 < left <= 600_000, "longer than they are taken to be known"


async def test_whatever_the_store_has_forgotten_it_is_told_again(store: Store) -> None:
    scope = Scope("acme", LIMITS)
    await settle(store.run, await granted(store, scope), {})
    await forget(store, scope)
    one = await granted(store, scope)
    await forget(store, scope)
    step = extending(one, MORE)
    assert isinstance(step.read(await store.run(step.script, step.keys, step.args)), Grant), "a lease tells its terms"
    assert await used(store, "tokens:total_tokens") == 150
    assert await settle(store.run, one, {"total_tokens": 120})
    assert await used(store, "tokens:total_tokens") == 120
    alone = Grant("made-while-away", scope, ONE, local=True, at_seconds=one.at_seconds)
    assert await settle(store.run, alone, {"total_tokens": 30})
    assert await used(store, "tokens:total_tokens") == 150


async def test_what_is_sent_again_was_not_done_before(store: Store) -> None:
    """The scripts that stand beside it, too, are run once."""
    scope, entry = Scope("acme", LIMITS), Entry(stream_of("acme", None), 10, (RECORD,))
    await settle(store.run, await granted(store, scope), {})
    await forget(store, scope)
    opening = both(loading("acme", "a", CHAIN), reserving(scope, ONE, await now(store))[1])
    session, one = opening.read(await store.run(opening.script, opening.keys, opening.args))
    assert isinstance(one, Grant)
    await forget(store, scope)
    closing = both(settling(one, ONE, entry), saving(session, Progress(CHAIN), SessionLimits()))
    settled, saved = closing.read(await store.run(closing.script, closing.keys, closing.args))
    assert (settled, saved.status) == (True, "begun")
    assert await store.command("XLEN", entry.stream) == 1
    assert await used(store, "tokens:total_tokens") == 100


async def test_a_gateway_that_never_told_its_terms_settles_by_those_of_the_lease(store: Store) -> None:
    """Another gateway of the same store, or this one after the store was emptied of what it may forget."""
    scope = Scope("acme", LIMITS)
    one = await granted(store, scope)
    other = Grant(one.id, Scope("acme", LIMITS), ONE, at_seconds=one.at_seconds)
    await forget(store, scope)
    assert await settle(store.run, other, {"total_tokens": 30})
    assert not await settle(store.run, one, {"total_tokens": 30})
    assert await used(store, "tokens:total_tokens") == 30


async def test_a_call_is_settled_by_the_terms_it_was_reserved_by(store: Store) -> None:
    old, new = Scope("acme", LIMITS), Scope("acme", (CALLS, WIDE.model_copy(update={"amount": 5})))
    one = await granted(store, old)
    other = await reserve(store.run, new, ONE, await now(store))
    assert isinstance(other, Denied) and other.label == "wide", "by the new terms, with what is in use by the old"
    assert await settle(store.run, one, {"requests": 1, "total_tokens": 70})
    assert [await used(store, f"{name}:total_tokens") for name in ("wide", "tokens", "trial")] == [70] * 3
    assert await kept.leases(store) == []
    assert await store.command("ZCARD", f"{SPACE}:slots:lanes:concurrent_calls") == 0


async def test_a_restarted_store_knows_nothing_and_serves_all_the_same(store: Store) -> None:
    scope = Scope("acme", LIMITS)
    one = await granted(store, scope)
    await store.command("FLUSHALL")
    assert not await settle(store.run, one, ONE), "as a lease that is gone"
    await granted(store, scope)
    assert await used(store, "tokens:total_tokens") == 100


async def test_the_tightest_limits_of_what_answers_tell_of_come_ready(store: Store) -> None:
    found = (await granted(store, Scope("acme", LIMITS))).stood
    assert found is not None
    assert {terms.limit.label: in_use for terms, in_use in found.shown} == {"tokens": 100_000_000, "calls": 1_000_000}
    assert [limit.label for limit in found.nearly] == ["trial"]
    assert [in_use for _, in_use in found.each] == [100_000_000] * 3 + [1, 1_000_000]
    assert found.fullest == 0, "without the call itself"
    again = (await granted(store, Scope("acme", LIMITS))).stood
    assert again is not None and again.fullest == 200_000, "one of five calls at once"
    refused = await reserve(store.run, Scope("acme", LIMITS), {"total_tokens": 900}, await now(store))
    assert isinstance(refused, Denied) and refused.stood is not None
    assert [(terms.limit.label, in_use) for terms, in_use in refused.stood.shown] == [
        ("tokens", 200_000_000),
        ("calls", 2_000_000),
    ]


@pytest.mark.parametrize(
    ("dimension", "stays"),
    [
        ("requests", 1),
        ("prefill_tokens", 50),
        ("cached_tokens", 10),
        ("decode_tokens", 0),
        ("total_tokens", 60),
        ("kv_read_bytes", 0),
        ("kv_byte_seconds", 7),
        ("money", 8),
    ],
)
async def test_a_dead_call_keeps_its_prompt(store: Store, dimension: Dimension, stays: int) -> None:
    asked: Amounts = {
        "requests": 1,
        "prefill_tokens": 50,
        "cached_tokens": 10,
        "decode_tokens": 30,
        "total_tokens": 90,
        "kv_read_bytes": 12345,
        "kv_byte_seconds": 7,
        "money": 8,
    }
    scope = Scope("acme", (Limit(name="one", dimension=dimension, amount=10**6, per_seconds=1e9),))
    one = await reserve(store.run, scope, asked)
    assert isinstance(one, Grant)
    (lease,) = await kept.leases(store)
    (terms,) = scope.standing(0).terms
    assert (lease.took[terms.bucket], lease.kept[terms.bucket]) == (asked[dimension] * terms.scale, stays * terms.scale)


async def test_what_goes_to_the_store_and_back_does_not_grow_with_the_limits(store: Store) -> None:
    sizes = [await sent_and_told(store, limits) for limits in (1, 24)]
    for few, many in zip(*sizes, strict=True):
        assert many <= few + 24 * 10, sizes


async def sent_and_told(store: Store, limits: int) -> tuple[int, ...]:
    """Bytes of a call's steps, and of the first one's reply, once the store knows the terms."""
    names = [f"tokens-every-minute-{number}" for number in range(limits)]
    scope = Scope("acme", tuple([TOKENS.model_copy(update={"name": name, "amount": 10**6}) for name in names]))
    await settle(store.run, await granted(store, scope), {})
    grant, step = reserving(scope, ONE, await now(store))
    told = await store.run(step.script, step.keys, step.args)
    assert isinstance(told, list)
    steps = (step, extending(grant, MORE), settling(grant, ONE))
    return *(sum(map(len, map(str, (*each.keys, *each.args)))) for each in steps), sum(map(len, map(plain, told)))


def plain(part: object) -> bytes | str:
    return part if isinstance(part, bytes) else str(part)
