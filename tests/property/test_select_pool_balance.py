"""Whatever callers do with leases and whenever they are cancelled: at the end nothing is in use and nobody waits."""

import asyncio
from typing import Literal

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.breaker import BreakerSettings, Outcome
from backends.demand import Demand
from backends.pool import Lease, Pool, PoolSettings, Replica

DEMAND = Demand(0.7, 0.1, 1, 1, None, "a", "m", 1.0)
Act = Literal["ask", "cancel", "first_token", "release", "drain", "undrain", "sick", "well", "tick", "turn"]
ACTS: list[Act] = [
    "ask",
    "ask",
    "cancel",
    "first_token",
    "release",
    "drain",
    "undrain",
    "sick",
    "well",
    "tick",
    "turn",
    "turn",
]
STEPS = st.tuples(st.sampled_from(ACTS), st.integers(0, 30), st.sampled_from(["success", "neutral", "failure"]))


class Play:
    def __init__(self) -> None:
        self.now = 0.0
        replicas = [Replica("a", "http://a", 1), Replica("b", "http://b", 2), Replica("c", "http://c", 1)]
        breaker = BreakerSettings(consecutive_failures=1, open_seconds=1.0)
        pool_settings = PoolSettings(max_waiting=5, breaker=breaker)
        self.pool = Pool("p", replicas, engine="vllm", clock=lambda: self.now, settings=pool_settings)
        self.calls: list[asyncio.Task[None]] = []
        self.leases: list[Lease] = []

    async def call(self, exclude: frozenset[str]) -> None:
        lease = await self.pool.lease(DEMAND, exclude, deadline=1e9)
        if isinstance(lease, Lease):
            with lease:
                self.leases.append(lease)
                await asyncio.get_running_loop().create_future()  # holds it until cancelled

    async def act(self, act: Act, number: int, outcome: Outcome) -> None:
        name = "abc"[number % 3]
        match act:
            case "ask":
                self.calls.append(asyncio.create_task(self.call(frozenset(name if number > 20 else ""))))
            case "cancel" if self.calls:
                self.calls[number % len(self.calls)].cancel()
            case "first_token" if self.leases:
                self.leases[number % len(self.leases)].first_token()
            case "release" if self.leases:
                self.leases[number % len(self.leases)].release(outcome)
            case "drain" | "undrain":
                self.pool.drain(name, act == "drain")
            case "sick" | "well":
                self.pool.set_health(name, act == "well")
            case "tick":
                self.now += number / 10
            case "turn":
                await asyncio.sleep(0)

    async def end(self) -> None:
        for call in self.calls:
            call.cancel()
        await asyncio.gather(*self.calls, return_exceptions=True)


async def played(steps: list[tuple[Act, int, Outcome]]) -> None:
    play = Play()
    for act, number, outcome in steps:
        await play.act(act, number, outcome)
        for state in play.pool.states():
            assert 0 <= state.in_flight <= (state.max_concurrent or 0)
    await play.end()
    assert play.pool.waiting == 0
    assert all(state.in_flight == 0 and state.work_seconds == 0.0 for state in play.pool.states())


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_nothing_is_left_behind(steps: list[tuple[Act, int, Outcome]]) -> None:
    asyncio.run(played(steps))
