"""The metrics that are read when somebody scrapes: what the store, the pools and the front hold at that moment."""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from backends.select import STALE_SECONDS
from gateway.metrics import Labels, Metrics
from gateway.pools import ServedPool
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
    metrics: Metrics, store: Store, pools: Pools, server: Server, settlements_waiting: Callable[[], int]
) -> None:
    """Add the readings of one gateway; `pools` gives those of the configuration in force."""
    metrics.reading(
        "kvgate_settlements_waiting",
        "Settlements that wait for the store.",
        (),
        lambda: [((), float(settlements_waiting()))],
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


def register_roster(metrics: Metrics, roster: Roster) -> None:
    """Add the readings of what is known of the store's tenants."""
    metrics.reading("kvgate_store_tenants", "Tenants of the store.", (), lambda: [((), len(roster.records))])
    metrics.reading(
        "kvgate_store_tenants_age_seconds", "Time since the store told of them.", (), lambda: [((), roster.age_seconds)]
    )


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
