"""A pool as the gateway uses it: its own key, its share of slots, what its engines understand."""

from collections.abc import Mapping

import pytest

from backends.demand import Demand
from backends.pool import Lease
from gateway.clock import monotonic
from gateway.pools import REFUSAL_SECONDS, ServedPool, share
from tests.unit.gateway.engines import engines, whole
from tests.unit.gateway.samples import config

ENVIRON = {"ENGINE_KEY": "engine-secret"}
WANTED = Demand(1.0, 1.0, 10, 10, None, None, "demo", 0.0)


def pool(
    port: int = 9, environ: Mapping[str, str] = ENVIRON, workers: int = 1, worker: int = 0, **fields: object
) -> ServedPool:
    main = {"models": ["demo"], "hardware": "h100-sxm", "replicas": [f"http://127.0.0.1:{port}"]} | fields
    loaded = config(("pools/main", main))
    return ServedPool(loaded.pools["main"], loaded.routing, monotonic, environ, workers, worker=worker)


async def test_an_engine_sees_the_pools_own_key() -> None:
    async with engines([whole(b"ok")]) as (engine,):
        served = pool(engine.port, engine_key="env:ENGINE_KEY")
        assert await served.get(f"127.0.0.1:{engine.port}", "/health") == (200, b"ok")
        await served.close()
    head = engine.asked[0]
    assert head.startswith(b"GET /health HTTP/1.1\r\n")
    assert b"\r\nhost: 127.0.0.1:%d\r\n" % engine.port in head
    assert b"\r\nauthorization: Bearer engine-secret\r\n" in head


async def test_without_a_key_none_is_sent() -> None:
    async with engines([whole(b"ok")]) as (engine,):
        served = pool(engine.port)
        await served.get(f"127.0.0.1:{engine.port}", "/health")
        await served.close()
    assert b"authorization" not in engine.asked[0].lower()


@pytest.mark.parametrize("environ", [{}, {"ENGINE_KEY": ""}])
def test_a_key_that_is_not_set_is_a_start_error(environ: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"pools\.main\.engine_key: set the variable ENGINE_KEY"):
        pool(environ=environ, engine_key="env:ENGINE_KEY")


@pytest.mark.parametrize(("workers", "worker", "slots"), [(1, 0, 5), (2, 0, 3), (2, 1, 2), (9, 8, 1)])
async def test_workers_share_a_replicas_slots(workers: int, worker: int, slots: int) -> None:
    served = pool(workers=workers, worker=worker, max_concurrent=5)
    for _ in range(slots):
        assert isinstance(await served.pool.lease(WANTED, deadline=0.0), Lease)
    assert not isinstance(await served.pool.lease(WANTED, deadline=0.0), Lease)


@pytest.mark.parametrize("slots", [4, 5, 63, 64])
def test_all_workers_together_have_just_the_slots_of_a_replica(slots: int) -> None:
    for workers in range(1, slots + 1):
        assert sum(share(slots, workers, worker) for worker in range(workers)) == slots


@pytest.mark.parametrize(("phase", "expected"), [("any", None), ("prefill", "prefill"), ("decode", "decode")])
def test_any_phase_is_no_phase(phase: str, expected: str | None) -> None:
    assert pool(phase=phase).pool.phase == expected


def test_a_pool_knows_its_replicas() -> None:
    served = pool(9)
    assert served.has("127.0.0.1:9")
    assert not served.has("127.0.0.1:10")


@pytest.mark.parametrize(("engine", "salted"), [("vllm", True), ("sglang", True), ("tgi", False), ("openai", False)])
def test_salts_go_to_engines_that_know_them(engine: str, salted: bool) -> None:
    assert pool(engine=engine).features.cache_salt is salted


def test_what_a_replica_refuses_is_believed_for_a_time_or_until_it_was_away() -> None:
    now = [1000.0]
    main = {"models": ["demo"], "hardware": "h100-sxm", "replicas": ["http://a:1", "http://b:1"]}
    loaded = config(("pools/main", main))
    served = ServedPool(loaded.pools["main"], loaded.routing, lambda: now[0], ENVIRON)

    def asked(replica: str) -> bool:
        return bool(served.features_of(replica).usage_in_stream)

    assert asked("a:1") and asked("b:1")
    served.refuses_usage("a:1")
    assert not asked("a:1") and asked("b:1")
    now[0] += REFUSAL_SECONDS
    assert not asked("a:1")
    now[0] += 1
    assert asked("a:1")
    served.refuses_usage("a:1")
    assert not asked("a:1"), "refused again"
    served.restarted("b:1")
    assert not asked("a:1")
    served.restarted("a:1")
    assert asked("a:1")
