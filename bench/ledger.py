"""What budgets cost the gateway: CPU of reserving and settling one call, by the number of limits.

Rule: the real store client against a real Valkey, 64 calls at a time, in the round trips of steps 3 and 9. A call
without limits makes the same two round trips for its session alone; the figure is what limits add to that, which is all
that budgets cost. It is compared with calls whose scripts keep the store as long, for whoever waits longer finds less
of what it needs in the processor's caches, and that is no work of budgets. Rounds are taken in turn and the smallest of
each is compared: a busy machine only ever adds.

    python -m bench.ledger
"""

import asyncio
import re
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable
from functools import lru_cache, partial
from pathlib import Path
from typing import Final, cast

import uvloop

from budgets.ledger import Amounts, Denied, Grant, Misdated, reserving, settling
from budgets.limit import Dimension, Limit
from budgets.scope import Scope
from budgets.script import Script, Step, both
from gateway import embedded, sessions
from gateway.digests import Chain, of_messages
from gateway.sessions import Progress, SessionLimits
from gateway.store import Store, StoreSettings
from gateway.tasks import Tasks

LIMITS: Final = (1, 6, 24)
CLIENTS: Final = 64
CALLS: Final = 6_400
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


async def call(store: Store, scope: Scope, chain: Chain, number: int, store_us: tuple[int, int] = (0, 0)) -> None:
    """Steps 3 and 9 of one call, as far as the store is concerned; `store_us` longer in the store than they need."""

    async def run(step: Step[object], longer_us: int = 0) -> object:
        return step.read(await store.run(lasting(step.script, longer_us), step.keys, step.args))

    loading = sessions.loading("bench", f"s{number % 500}", chain)
    if not scope.limits:
        session = await run(loading, store_us[0])
        assert isinstance(session, sessions.Session)
        await run(sessions.saving(session, Progress(chain), SessionLimits()), store_us[1])
        return
    _, reserve = reserving(scope, ASKED, time.time(), id=str(uuid.UUID(int=number)))
    opened = await run(both(loading, reserve))
    assert isinstance(opened, tuple)
    session, grant = opened
    assert isinstance(session, sessions.Session) and isinstance(grant, Grant)
    await run(both(settling(grant, ASKED), sessions.saving(session, Progress(chain), SessionLimits())))


@lru_cache
def lasting(script: Script, longer_us: int) -> Script:
    """The script, but it takes so much longer."""
    if not longer_us:
        return script
    wait = f"local till = os.clock() + {longer_us}e-6 while os.clock() < till do end"
    return Script(script.name, f"{wait}\n{script.source}")


async def store_microseconds(store: Store, scope: Scope) -> tuple[int, int]:
    """How long the scripts that reserve and that settle take in the store: the least of many."""
    least = [10**6, 10**6]
    for number in range(200):
        grant, reserve = reserving(scope, ASKED, time.time(), id=f"timed-{number}")
        for at, step in enumerate((reserve, settling(grant, ASKED))):
            await store.command("CONFIG", "RESETSTAT")
            await store.run(step.script, step.keys, step.args)
            told = await store.command("INFO", "commandstats")
            assert isinstance(told, bytes)
            if taken := re.search(rb"cmdstat_evalsha:calls=1,usec=(\d+)", told):
                least[at] = min(least[at], int(taken[1])) if number else least[at]
    return least[0], least[1]


async def python_microseconds(store: Store, scope: Scope, chain: Chain) -> float:
    """What is done here for the budgets of one call, without waiting and the wire: the least of many rounds."""

    def opening() -> Step[tuple[sessions.Session, Grant | Denied | Misdated]]:
        return both(sessions.loading("bench", "s1", chain), reserving(scope, ASKED, time.time(), id="timed")[1])

    def closing(session: sessions.Session, grant: Grant) -> Step[tuple[bool, sessions.Saved]]:
        return both(settling(grant, ASKED), sessions.saving(session, Progress(chain), SessionLimits()))

    open_ = opening()
    opened = await store.run(open_.script, open_.keys, open_.args)
    session, grant = open_.read(opened)
    assert isinstance(grant, Grant)
    close = closing(session, grant)
    closed = await store.run(close.script, close.keys, close.args)
    session_alone = cast("list[object]", opened)[0]
    saved_alone = cast("list[object]", closed)[1]

    def bare() -> object:
        saving = sessions.saving(session, Progress(chain), SessionLimits())
        return sessions.loading("bench", "s1", chain).read(session_alone), saving.read(saved_alone)

    whole = least(lambda: (opening().read(opened), closing(session, grant).read(closed)))
    return whole - least(bare)


def least(what: Callable[[], object], at_once: int = 100, rounds: int = 300) -> float:
    """The CPU of doing something once, µs: the shortest round is one in which nobody else came between."""
    shortest = float("inf")
    for _ in range(rounds):
        began = time.perf_counter()
        for _ in range(at_once):
            what()
        shortest = min(shortest, time.perf_counter() - began)
    return shortest / at_once * 1e6


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
    scopes = {limits: scope(limits) for limits in LIMITS}
    lasting_us = {limits: await store_microseconds(store, each) for limits, each in scopes.items()}
    found: dict[tuple[int, bool], float] = {}
    for _ in range(ROUNDS):
        for limits, each in scopes.items():
            bare = partial(call, store, scope(0), chain, store_us=lasting_us[limits])
            for alone, calling in ((True, bare), (False, partial(call, store, each, chain))):
                taken = await microseconds(calling)
                found[limits, alone] = min(taken, found.get((limits, alone), taken))
    python = {limits: await python_microseconds(store, each, chain) for limits, each in scopes.items()}
    print(
        "| limits | in the store, µs | both round trips, µs | for the session alone | for budgets | of it in Python |"
    )
    print("| --- | --- | --- | --- | --- | --- |")
    for limits in LIMITS:
        without, whole = found[limits, True], found[limits, False]
        figures = (whole, without, whole - without, python[limits])
        print(f"| {limits} | {sum(lasting_us[limits])} | {' | '.join([f'{each:.1f}' for each in figures])} |")
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
