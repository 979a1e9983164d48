"""Which pool comes first: the session's home while it is worth it, then the one for the phase."""

import pytest

from backends.demand import Demand, Phase
from backends.select import ReplicaState
from gateway.clock import monotonic
from gateway.pools import ServedPool
from gateway.routing import candidates, stays
from tests.unit.gateway.samples import config

HOME = "127.0.0.1:9001"


def pools() -> dict[str, ServedPool]:
    def pool(phase: str, port: int) -> dict[str, object]:
        url = f"http://127.0.0.1:{port}"
        return {"models": ["demo"], "hardware": "h100-sxm", "phase": phase, "replicas": [url]}

    loaded = config(
        ("pools", {"any": pool("any", 9003), "prefill": pool("prefill", 9002), "decode": pool("decode", 9001)})
    )
    return {name: ServedPool(found, loaded.routing, monotonic, {}) for name, found in loaded.pools.items()}


def wanted(prefill_seconds: float) -> Demand:
    return Demand(prefill_seconds, 1.0, 100, 100, None, None, "demo", 0.0)


def order(phase: Phase, home: str | None = None, saved: float = 1.0) -> list[str]:
    served = list(pools().values())
    found = candidates(served, [wanted(2.0 - saved if pool.has(HOME) else 2.0) for pool in served], phase, home, 2.0)
    return [pool.name for pool, _ in found]


@pytest.mark.parametrize(
    ("phase", "expected"), [("prefill", ["prefill", "any", "decode"]), ("decode", ["decode", "any", "prefill"])]
)
def test_the_phases_own_pool_first_and_every_pool_at_last(phase: Phase, expected: list[str]) -> None:
    assert order(phase) == expected


def test_a_session_stays_at_its_home() -> None:
    assert order("prefill", HOME) == ["decode", "prefill", "any"]


def test_a_home_that_is_gone_is_no_home() -> None:
    assert order("prefill", "127.0.0.1:1") == ["prefill", "any", "decode"]


def test_each_pool_comes_with_its_own_demand() -> None:
    served = list(pools().values())
    demands = [wanted(float(number)) for number in range(3)]
    found = candidates(served, demands, "decode", None, 9.0)
    assert {pool.name: demand for pool, demand in found} == dict(zip([p.name for p in served], demands, strict=True))


IDLE = ReplicaState("other")
BUSY = ReplicaState("home", in_flight=3, max_concurrent=4, decode_seconds=5.0)


@pytest.mark.parametrize(
    ("home", "saved", "expected"),
    [
        (BUSY, 6.0, True),
        (BUSY, 5.0, True),
        (BUSY, 4.9, False),
        (BUSY._replace(decode_seconds=0.0), 0.0, True),
        (BUSY._replace(in_flight=4), 100.0, False),
        (BUSY._replace(healthy=False), 100.0, False),
        (BUSY._replace(draining=True), 100.0, False),
        (BUSY._replace(ejected=True), 100.0, False),
    ],
)
def test_a_home_is_worth_what_it_saves(home: ReplicaState, saved: float, expected: bool) -> None:
    assert stays([IDLE, home], "home", saved) is expected


def test_replicas_that_cannot_take_the_call_are_no_measure() -> None:
    assert stays([IDLE._replace(healthy=False), BUSY], "home", 0.0)
