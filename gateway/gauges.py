"""The metrics that are read when somebody scrapes: what the store, the pools and the front hold at that moment."""

from collections.abc import Callable, Iterable, Mapping

from gateway.metrics import Labels, Metrics
from gateway.pools import ServedPool
from gateway.server import Server
from gateway.store import Store

Pools = Callable[[], Mapping[str, ServedPool]]
Values = Iterable[tuple[Labels, float]]


def register(metrics: Metrics, store: Store, pools: Pools, server: Server) -> None:
    """Add the gauges of one gateway; `pools` gives those of the configuration in force."""
    counters = store.counters
    metrics.gauge("kvgate_store_round_trips", "Batches sent to the store.", (), lambda: [((), counters.round_trips)])
    metrics.gauge("kvgate_store_calls", "Commands sent to the store.", (), lambda: [((), counters.calls)])
    metrics.gauge("kvgate_store_failures", "Commands that failed.", (), lambda: [((), counters.failures)])
    metrics.gauge("kvgate_store_timeouts", "Commands not answered in time.", (), lambda: [((), counters.timeouts)])
    metrics.gauge("kvgate_store_available", "1 while the store answers.", (), lambda: [((), float(store.available))])
    metrics.gauge("kvgate_connections", "Clients' connections.", (), lambda: [((), len(server.connections))])
    metrics.gauge("kvgate_requests_open", "Requests being served.", (), lambda: [((), len(server.tasks))])
    metrics.gauge("kvgate_in_flight", "Calls at a replica.", ("pool", "replica"), lambda: _in_flight(pools()))
    metrics.gauge("kvgate_replica_up", "1 for a replica that may be used.", ("pool", "replica"), lambda: _up(pools()))
    metrics.gauge(
        "kvgate_replica_work_seconds", "Predicted work at a replica.", ("pool", "replica"), lambda: _work(pools())
    )
    metrics.gauge("kvgate_waiting", "Calls that wait for a replica.", ("pool",), lambda: _waiting(pools()))


def _in_flight(pools: Mapping[str, ServedPool]) -> Values:
    return [((name, s.name), s.in_flight) for name, pool in pools.items() for s in pool.pool.states()]


def _up(pools: Mapping[str, ServedPool]) -> Values:
    return [((name, s.name), float(s.eligible)) for name, pool in pools.items() for s in pool.pool.states()]


def _work(pools: Mapping[str, ServedPool]) -> Values:
    return [((name, s.name), s.work_seconds) for name, pool in pools.items() for s in pool.pool.states()]


def _waiting(pools: Mapping[str, ServedPool]) -> Values:
    return [((name,), pool.pool.waiting) for name, pool in pools.items()]
