"""What budgets cost the gateway: CPU of reserving and settling one call, by the number of limits.

Rule: the real store client against a real Valkey, 64 calls at a time, in the round trips of steps 3 and 9. A call
without limits makes the same two round trips for its session alone; the figure is what limits add to that, which is all
that budgets cost. Rounds are taken in turn and the smallest of each is compared, for a busy machine only ever adds.

    python -m bench.ledger
"""

import asyncio
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from budgets.ledger import Amounts, Grant, reserving, settling
from budgets.limit import Dimension, Limit
from budgets.scope import Scope
from budgets.script import Step, both
from gateway import embedded, sessions
from gateway.digests import Chain, of_messages
from gateway.sessions import Progress, SessionLimits
from gateway.store import Store, StoreSettings
from gateway.tasks import Tasks

LIMITS: Final = (0, 1, 6, 24)
CLIENTS: Final = 64
CALLS: Final = 12_800
ROUNDS: Final = 7
DIMENSIONS: Final[tuple[Dimension, ...]] = ("total_tokens", "requests", "decode_tokens", "kv_read_bytes")
ASKED: Final[Amounts] = {
    "requests": 1,
    "prefill_tokens": 900,
    "decode_tokens": 100,
    "total_tokens": 1_000,
    "kv_read_bytes": 10**9,
}


def scope(limits: int) -> Scope:
    """A tenant with so many limits that never refuse."""
    made = [
        Limit(name=f"limit-{at}", dimension=DIMENSIONS[at % len(DIMENSIONS)], amount=10**15, per_seconds=60)
        for at in range(limits)
    ]
    return Scope("bench", tuple(made))


async def call(store: Store, scope: Scope, chain: Chain, number: int) -> None:
    """Steps 3 and 9 of one call, as far as the store is concerned."""

    async def run(step: Step[object]) -> object:
        return step.read(await store.run(step.script, step.keys, step.args))

    loading = sessions.loading("bench", f"s{number % 500}", chain)
    if not scope.limits:
        session = await run(loading)
        assert isinstance(session, sessions.Session)
        await run(sessions.saving(session, Progress(chain), SessionLimits()))
        return
    _, reserve = reserving(scope, ASKED, time.time(), id=str(uuid.UUID(int=number)))
    opened = await run(both(loading, reserve))
    assert isinstance(opened, tuple)
    session, grant = opened
    assert isinstance(session, sessions.Session) and isinstance(grant, Grant)
    await run(both(settling(grant, ASKED), sessions.saving(session, Progress(chain), SessionLimits())))


async def microseconds(calling: Callable[[int], Awaitable[None]]) -> float:
    """CPU of this process for each of `CALLS` calls, `CLIENTS` at a time."""

    async def client(first: int) -> None:
        for number in range(first, CALLS, CLIENTS):
            await calling(number)

    began = time.process_time()
    await asyncio.gather(*map(client, range(CLIENTS)))
    return (time.process_time() - began) / CALLS * 1e6


async def measure(url: str) -> None:
    """Print the table."""
    tasks = Tasks()
    store = await Store.connect(url, tasks, StoreSettings(call_timeout_seconds=30.0))
    chain = Chain(of_messages([b"%d" % at for at in range(6)]))
    found: dict[int, float] = {}
    for _ in range(ROUNDS):
        for limits in LIMITS:
            taken = await microseconds(partial(call, store, scope(limits), chain))
            found[limits] = min(taken, found.get(limits, taken))
    print("| limits | CPU of both round trips, µs | of it for budgets |\n| --- | --- | --- |")
    for limits, taken in found.items():
        print(f"| {limits} | {taken:.1f} | {taken - found[0]:.1f} |")
    store.close()
    await tasks.close()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="kvgate-bench-") as folder:
        server = embedded.start(Path(folder))
        try:
            uvloop.run(measure(server.url))
        finally:
            server.close()


if __name__ == "__main__":
    main()
