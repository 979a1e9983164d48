"""The metrics that are read when somebody scrapes: what the store, the pools and the front hold at that moment."""

import gc
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Final

from backends.select import STALE_SECONDS
from gateway.metric_kinds import Labels
from gateway.metrics import Metrics
from gateway.outstanding import Outstanding
from gateway.pools import ServedPool
from gateway.recent import Memory
from gateway.roster import Roster
from gateway.server import Server
from gateway.store import Store, StoreCounters

Pools = Callable[[], Mapping[str, ServedPool]]
Values = Iterable[tuple[Labels, float]]

STORE_COUNTERS: Final[Mapping[str, str]] = {
    "round_trips": "Batches sent to the store.",
    "calls": "Commands sent to the store.",
    "failures": "Commands that failed.",
    "timeouts": "Commands not answered in time.",
}


def register(
    metrics: Metrics,
    store: Store,
    pools: Pools,
    server: Server,
    settlements_waiting: Callable[[], int],
    sessions_waiting: Callable[[], int],
) -> None:
    """Add the readings of one gateway; `pools` gives those of the configuration in force."""
    metrics.reading(
        "kvgate_settlements_waiting",
        "Settlements that wait for the store.",
        (),
        lambda: [((), float(settlements_waiting()))],
    )
    metrics.reading(
        "kvgate_sessions_waiting",
        "Sessions with turns that the store has not heard of.",
        (),
        lambda: [((), float(sessions_waiting()))],
    )
    for name, description in STORE_COUNTERS.items():
        read = partial(_counter, store.counters, name)
        metrics.reading(f"kvgate_store_{name}", description, (), read, counts=True)
    metrics.reading("kvgate_store_available", "1 while the store answers.", (), lambda: [((), float(store.available))])
    metrics.reading("kvgate_connections", "Clients' connections.", (), lambda: [((), len(server.connections))])
    metrics.reading("kvgate_requests_open", "Requests being served.", (), lambda: [((), len(server.tasks))])
    metrics.reading("kvgate_in_flight", "Calls at a replica.", ("pool", "replica"), lambda: _in_flight(pools()))
    metrics.reading("kvgate_replica_up", "1 for a replica that may be used.", ("pool", "replica"), lambda: _up(pools()))
    metrics.reading(
        "kvgate_replica_fresh", "1 while an engine's own metrics are.", ("pool", "replica"), lambda: _fresh(pools())
    )
    metrics.reading(
        "kvgate_replica_work_seconds", "Predicted work at a replica.", ("pool", "replica"), lambda: _work(pools())
    )
    metrics.reading("kvgate_waiting", "Calls that wait for a replica.", ("pool",), lambda: _waiting(pools()))


def register_outstanding(metrics: Metrics, outstanding: Outstanding) -> None:
    """Add the reading of what calls in flight hold of budgets."""
    metrics.reading(
        "kvgate_budget_reserved",
        "Reserved by calls in flight and not settled, in units of the dimension.",
        ("tenant", "dimension"),
        lambda: outstanding.reserved(metrics.tenant),
    )


def register_roster(metrics: Metrics, roster: Roster) -> None:
    """Add the readings of what is known of the store's tenants."""
    metrics.reading("kvgate_store_tenants", "Tenants of the store.", (), lambda: [((), roster.tenants)])
    metrics.reading(
        "kvgate_store_tenants_age_seconds", "Time since the store told of them.", (), lambda: [((), roster.age_seconds)]
    )


def register_memory(metrics: Metrics, memories: Callable[[], Iterable[tuple[str, Memory]]]) -> None:
    """Add the readings of the process's memory and of what is remembered in it, by name."""
    metrics.reading("kvgate_resident_bytes", "Memory of the process.", (), _resident)
    metrics.reading(
        "kvgate_python_blocks", "Blocks that Python's objects take.", (), lambda: [((), sys.getallocatedblocks())]
    )
    metrics.reading(
        "kvgate_garbage_objects_total",
        "Objects that only the garbage collector found.",
        (),
        lambda: [((), sum(each["collected"] for each in gc.get_stats()))],
        counts=True,
    )
    metrics.reading(
        "kvgate_remembered",
        "What is remembered, in the unit of its bound.",
        ("what",),
        lambda: _sums((name, memory.weight) for name, memory in memories()),
    )
    metrics.reading(
        "kvgate_remembered_most",
        "Its bound.",
        ("what",),
        lambda: _sums((name, memory.most) for name, memory in memories()),
    )


def _sums(values: Iterable[tuple[str, int]]) -> Values:
    sums: Counter[str] = Counter()
    for name, value in values:
        sums[name] += value
    return [((name,), value) for name, value in sums.items()]


def _resident() -> Values:
    """Nothing where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return []
    return [((), pages * os.sysconf("SC_PAGE_SIZE"))]


def _counter(counters: StoreCounters, name: str) -> Values:
    return [((), getattr(counters, name))]


def _in_flight(pools: Mapping[str, ServedPool]) -> Values:
    return [((name, s.name), s.in_flight) for name, pool in pools.items() for s in pool.pool.states()]


def _up(pools: Mapping[str, ServedPool]) -> Values:
    return [((name, s.name), float(s.eligible)) for name, pool in pools.items() for s in pool.pool.states()]


def _work(pools: Mapping[str, ServedPool]) -> Values:
    states = [(name, s) for name, pool in pools.items() for s in pool.pool.states()]
    return [((name, s.name), s.work_seconds - STALE_SECONDS if s.stale else s.work_seconds) for name, s in states]


def _fresh(pools: Mapping[str, ServedPool]) -> Values:
    return [((name, s.name), float(not s.stale)) for name, pool in pools.items() for s in pool.pool.states()]


def _waiting(pools: Mapping[str, ServedPool]) -> Values:
    return [((name,), pool.pool.waiting) for name, pool in pools.items()]
