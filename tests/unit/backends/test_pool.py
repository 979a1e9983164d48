"""The pool: leases, waiting, breakers with a floor, and nothing left behind."""

import asyncio
from collections.abc import Callable

import pytest

from backends.breaker import BreakerSettings, Outcome
from backends.engines.load import Load
from backends.pool import Lease, NoReplica, Pool, PoolSettings, Replica
from tests.unit.backends.demands import demand

FAR = 1e9
NOW = 0.0


class Hands:
    """A clock set by hand."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def pool_of(
    count: int = 2, room: int | None = 1, clock: Callable[[], float] | None = None, floor: float = 0.34
) -> Pool:
    replicas = [Replica(name, f"http://{name}", room) for name in "abcdef"[:count]]
    breaker = BreakerSettings(consecutive_failures=2, open_seconds=5.0)
    settings = PoolSettings(max_waiting=2, floor=floor, breaker=breaker)
    return Pool("p", replicas, engine="vllm", clock=clock or Hands(), settings=settings)


async def leased(pool: Pool, *exclude: str, home: str | None = None) -> Lease:
    lease = await pool.lease(demand(home=home), frozenset(exclude), deadline=FAR)
    assert isinstance(lease, Lease)
    return lease


async def waiting(pool: Pool, *exclude: str) -> "asyncio.Task[Lease | NoReplica]":
    task = asyncio.create_task(pool.lease(demand(), frozenset(exclude), deadline=FAR))
    await asyncio.sleep(0)  # one turn: it now waits, or has its answer
    return task


async def end(pool: Pool, outcome: Outcome, *exclude: str) -> None:
    (await leased(pool, *exclude)).release(outcome)


def in_use(pool: Pool) -> dict[str, int]:
    return {state.name: state.in_flight for state in pool.states()}


def ejected(pool: Pool) -> set[str]:
    return {state.name for state in pool.states() if state.ejected}


async def test_a_lease_counts_its_work_until_first_token_and_release() -> None:
    pool = pool_of(1, room=3)
    first, _second = await leased(pool), await leased(pool)
    assert (pool.states()[0].prefill_seconds, pool.states()[0].decode_seconds) == (2.0, 4.0)
    first.first_token()
    first.first_token()
    assert (pool.states()[0].prefill_seconds, pool.states()[0].decode_seconds) == (1.0, 4.0)
    first.release("success")
    first.release("failure")
    first.first_token()
    state = pool.states()[0]
    assert (state.in_flight, state.prefill_seconds, state.decode_seconds) == (1, 1.0, 2.0)


async def test_an_idle_replica_is_exactly_idle() -> None:
    pool = pool_of(1, room=3)
    leases = [await pool.lease(demand(third, third), deadline=FAR) for third in (0.1, 0.2, 0.3)]
    for lease in leases:
        assert isinstance(lease, Lease)
        lease.release("success")
    assert pool.states()[0].work_seconds == 0.0


async def test_leaving_the_context_gives_the_lease_back_however_it_is_left() -> None:
    pool = pool_of(1)
    with pytest.raises(ValueError, match="early"), await leased(pool):
        raise ValueError("early")
    with await leased(pool) as lease:
        lease.release("failure")
    assert in_use(pool) == {"a": 0}


async def test_leases_spread_and_follow_their_home() -> None:
    pool = pool_of(2, room=9)
    names = [(await leased(pool)).replica.name for _ in range(4)]
    assert sorted(names) == ["a", "a", "b", "b"]
    assert (await leased(pool, home="b")).replica.url == "http://b"


async def test_those_who_wait_are_served_in_order() -> None:
    pool = pool_of(1)
    held = await leased(pool)
    first, second = await waiting(pool), await waiting(pool)
    held.release("success")
    one = await first
    assert isinstance(one, Lease)
    assert not second.done()
    one.release("success")
    assert isinstance(await second, Lease)
    assert pool.waiting == 0


async def test_a_newcomer_does_not_overtake() -> None:
    pool = pool_of(1)
    held = await leased(pool)
    first = await waiting(pool)
    held.release("success")  # granted to `first`, which has not run yet
    newcomer = await waiting(pool)
    assert isinstance(await first, Lease)
    assert not newcomer.done()
    newcomer.cancel()


async def test_one_who_cannot_use_the_free_replica_does_not_hold_up_the_next() -> None:
    pool = pool_of(2)
    a, b = await leased(pool, "b"), await leased(pool, "a")
    choosy, easy = await waiting(pool, "a"), await waiting(pool)
    a.release("success")
    assert isinstance(await easy, Lease)
    b.release("success")
    got = await choosy
    assert isinstance(got, Lease)
    assert got.replica.name == "b"


async def test_a_full_queue_says_saturated() -> None:
    pool = pool_of(1)
    await leased(pool)
    tasks = [await waiting(pool), await waiting(pool)]
    assert await pool.lease(demand(), deadline=FAR) == NoReplica("saturated")
    for task in tasks:
        task.cancel()


async def test_the_deadline_ends_the_wait() -> None:
    pool = pool_of(1)
    held = await leased(pool)
    assert await pool.lease(demand(), deadline=NOW) == NoReplica("timeout")
    assert await pool.lease(demand(), deadline=NOW + 0.01) == NoReplica("timeout")
    assert pool.waiting == 0
    held.release("success")
    assert in_use(pool) == {"a": 0}


async def test_cancelling_one_who_waits_leaves_nothing() -> None:
    pool = pool_of(1)
    held = await leased(pool)
    task = await waiting(pool)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert pool.waiting == 0
    held.release("success")
    assert in_use(pool) == {"a": 0}


async def test_a_lease_granted_in_the_turn_of_the_cancel_goes_to_the_next() -> None:
    pool = pool_of(1)
    held = await leased(pool)
    cancelled, patient = await waiting(pool), await waiting(pool)
    held.release("success")
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    assert isinstance(await patient, Lease)
    assert in_use(pool) == {"a": 1}


async def test_failures_eject_and_a_probe_brings_back() -> None:
    clock = Hands()
    pool = pool_of(2, room=9, clock=clock)
    await end(pool, "failure", "b")
    await end(pool, "failure", "b")
    assert (ejected(pool), pool.breaker_state("a")) == ({"a"}, "open")
    assert (await leased(pool, home="a")).replica.name == "b"
    clock.now = 5.0
    probe = await leased(pool, "b")
    assert (await leased(pool)).replica.name == "b"  # one probe at a time
    probe.release("success")
    assert (ejected(pool), pool.breaker_state("a")) == (set(), "closed")


async def test_the_first_token_of_a_probe_is_proof_enough() -> None:
    clock = Hands()
    pool = pool_of(2, room=9, clock=clock)
    await end(pool, "failure", "b")
    await end(pool, "failure", "b")
    clock.now = 5.0
    probe = await leased(pool, "b")
    assert ejected(pool) == {"a"}
    probe.first_token()
    assert ejected(pool) == set()
    probe.release("failure")  # counts as any call's failure
    assert ejected(pool) == set()


async def test_neutral_ends_never_eject() -> None:
    pool = pool_of(2)
    for _ in range(20):
        await end(pool, "neutral", "b")
    assert ejected(pool) == set()


@pytest.mark.parametrize("order", [["bc", "ac", "ab"], ["ab", "bc", "ac"]])
async def test_the_floor_keeps_the_soonest_due_in_use(order: list[str]) -> None:
    clock = Hands()
    pool = pool_of(3, room=9, clock=clock)
    for at, others in enumerate(order):
        clock.now = float(at)
        await end(pool, "failure", *others)
        await end(pool, "failure", *others)
    assert ejected(pool) == set(order[0]), "the first to be taken out is the first that may be tried again"
    assert ejected(pool_of(1)) == set()


async def test_a_pool_of_one_is_never_ejected_but_may_be_unhealthy() -> None:
    pool = pool_of(1)
    await end(pool, "failure")
    await end(pool, "failure")
    await end(pool, "failure")
    pool.set_health("a", False)
    assert await pool.lease(demand(), deadline=FAR) == NoReplica("unhealthy")


async def test_a_pool_that_drains_says_so_at_once_and_to_those_who_wait() -> None:
    pool = pool_of(1)
    held = await leased(pool)
    task = await waiting(pool)
    pool.drain("a")
    assert await task == NoReplica("draining")
    assert await pool.lease(demand(), deadline=FAR) == NoReplica("draining")
    held.release("success")
    pool.drain("a", False)
    assert isinstance(await pool.lease(demand(), deadline=FAR), Lease)


async def test_a_retry_with_nobody_left_is_told_at_once() -> None:
    assert await pool_of(1).lease(demand(), frozenset("a"), deadline=FAR) == NoReplica("unhealthy")


async def test_a_replica_that_comes_back_serves_those_who_wait() -> None:
    pool = pool_of(2)
    pool.set_health("b", False)
    await leased(pool)
    task = await waiting(pool)
    pool.set_health("b", True)
    got = await task
    assert isinstance(got, Lease)
    assert got.replica.name == "b"


async def test_what_probes_learn_is_kept() -> None:
    pool = pool_of(2)
    pool.learn("a", load=Load(running=3), max_model_len=4096)
    pool.learn("b", load=None, max_model_len=2048)
    pool.learn("b", load=None, max_model_len=None)
    assert (pool.max_model_len, pool.load("a"), pool.load("b")) == (2048, Load(running=3), None)


async def test_repr_shows_the_state() -> None:
    pool = pool_of(2)
    lease = await leased(pool, "b")
    pool.drain("b")
    assert repr(pool) == "<Pool p a:1 b:0! waiting:0>"
    lease.release("success")
    assert repr(lease) == "<Lease a released>"


async def test_the_floor_counts_replicas_that_can_take_calls_only() -> None:
    pool = pool_of(2, room=9)
    await end(pool, "failure", "a")
    await end(pool, "failure", "a")
    assert ejected(pool) == {"b"}
    pool.set_health("a", False)
    assert (await leased(pool)).replica.name == "b"


async def test_a_replica_due_for_a_probe_goes_to_the_one_who_waited_longest() -> None:
    clock = Hands()
    pool = pool_of(2, clock=clock)
    await end(pool, "failure", "a")
    await end(pool, "failure", "a")
    await leased(pool)
    first = await waiting(pool)
    clock.now = 5.0
    newcomer = await waiting(pool)
    assert isinstance(await first, Lease)
    assert not newcomer.done()
    newcomer.cancel()


async def test_a_replica_that_asked_to_be_left_alone_is_passed_over_until_then() -> None:
    clock = Hands()
    pool = pool_of(2, room=8, clock=clock)
    first = await leased(pool)
    first.rest(clock.now + 5.0)
    first.release("neutral")
    assert {(await leased(pool)).replica.name for _ in range(4)} == {"b"}
    clock.now = 5.1
    assert (await leased(pool)).replica.name == "a"


async def test_when_all_rest_calls_wait_and_are_served_once_the_time_is_over() -> None:
    clock = Hands()
    pool = pool_of(1, room=8, clock=clock)
    lease = await leased(pool)
    lease.rest(clock.now + 5.0)
    lease.release("neutral")
    task = await waiting(pool)
    pool.wake()
    assert not task.done()
    clock.now = 5.1
    pool.wake()
    assert isinstance(await task, Lease)


async def test_what_an_engine_has_of_others_counts_as_work_there() -> None:
    pool = pool_of(2, room=9)
    pool.learn("a", load=Load(running=4, waiting=2), max_model_len=None)
    assert [(await leased(pool)).replica.name for _ in range(2)] == ["b", "b"]
    pool.learn("a", load=Load(running=0, waiting=0), max_model_len=None)
    assert (await leased(pool)).replica.name == "a"


async def test_our_own_calls_are_not_counted_twice() -> None:
    pool = pool_of(2, room=9)
    held = [await leased(pool, "b") for _ in range(3)]
    before = pool.states()[0].work_seconds
    pool.learn("a", load=Load(running=3, waiting=0), max_model_len=None)
    assert pool.states()[0].work_seconds == before
    pool.learn("a", load=Load(running=3, waiting=1), max_model_len=None)
    assert pool.states()[0].work_seconds > before
    for lease in held:
        lease.release("success")


async def test_full_kv_memory_is_worth_a_call() -> None:
    pool = pool_of(2, room=9)
    pool.learn("a", load=Load(kv_usage=0.99), max_model_len=None)
    assert (await leased(pool)).replica.name == "b"


async def test_a_replica_whose_numbers_stopped_being_fresh_comes_last_and_still_serves() -> None:
    pool = pool_of(2, room=9)
    pool.learn("a", load=Load(running=0), max_model_len=None)
    for _ in range(3):
        pool.learn("a", load=None, max_model_len=None)
    assert [state.stale for state in pool.states()] == [True, False]
    assert [(await leased(pool, home="a")).replica.name for _ in range(3)] == ["b"] * 3
    assert (await leased(pool, "b")).replica.name == "a", "nobody else may"
    pool.learn("a", load=Load(running=1), max_model_len=None)
    assert not pool.states()[0].stale


async def test_a_call_that_ended_while_the_engine_was_asked_is_still_ours() -> None:
    pool = pool_of(2, room=9)
    (await leased(pool, "b")).release("success")
    pool.learn("a", load=Load(running=1), max_model_len=None, own_calls=1)
    assert pool.states()[0].work_seconds == 0


async def test_a_shorter_wait_does_not_shorten_one_that_is_under_way() -> None:
    clock = Hands()
    pool = pool_of(2, room=8, clock=clock)
    first, second = await leased(pool, "b"), await leased(pool, "b")
    first.rest(5.0)
    second.rest(1.0)
    clock.now = 2.0
    assert {(await leased(pool)).replica.name for _ in range(4)} == {"b"}


async def test_calls_that_the_floor_lets_through_beside_a_probe_are_no_probes() -> None:
    clock = Hands()
    pool = pool_of(1, room=9, clock=clock)
    await end(pool, "failure")
    await end(pool, "failure")
    clock.now = 5.0
    probe, beside = await leased(pool), await leased(pool)
    beside.release("failure")
    assert pool.breaker_state("a") == "half_open", "what the probe shows is still awaited"
    probe.release("success")
    assert pool.breaker_state("a") == "closed"
