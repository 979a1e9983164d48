"""Health: the judgement alone, then the loop with scripted probes."""

import asyncio
from collections.abc import Sequence

import pytest

from backends.engines.load import Load
from backends.health import Health, HealthSettings, ProbeResult, judge, watch
from backends.pool import Pool, Replica

SETTINGS = HealthSettings(interval_seconds=5.0, down_after=3, up_after=2)


def judged(probes: str, health: Health | None = None) -> list[bool]:
    """`probes`: one character a probe, `+` alive, `-` not."""
    current, seen = health or Health(), []
    for character in probes:
        current = judge(current, character == "+", SETTINGS)
        seen.append(current.healthy)
    return seen


def test_down_after_three_in_a_row() -> None:
    assert judged("---") == [True, True, False]
    assert judged("--+--") == [True] * 5


def test_up_after_two_in_a_row() -> None:
    assert judged("++", Health(False)) == [False, True]
    assert judged("+-+-", Health(False)) == [False] * 4


async def watched(probes: Sequence[ProbeResult]) -> tuple[Pool, list[bool], list[float]]:
    pool = Pool("p", [Replica("a", "http://a")], engine="vllm", clock=lambda: 0.0)
    script, healthy, slept = iter(probes), [], []

    async def probe(replica: Replica) -> ProbeResult:
        assert replica.url == "http://a"
        return next(script)

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        healthy.append(pool.states()[0].healthy)
        if len(slept) == len(probes):
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        await watch(pool, pool.replicas[0], probe, sleep, SETTINGS)
    return pool, healthy, slept


async def test_the_pool_is_told() -> None:
    dead, alive = ProbeResult(False), ProbeResult(True, max_model_len=2048, load=Load(running=1))
    pool, healthy, slept = await watched([alive, dead, dead, dead, alive, alive])
    assert healthy == [True, True, True, False, False, True]
    assert slept == [5.0] * 6
    assert (pool.max_model_len, pool.load("a")) == (2048, Load(running=1))


async def test_the_load_of_a_replica_that_does_not_answer_is_unknown() -> None:
    pool, _, _ = await watched([ProbeResult(True, load=Load(running=1)), ProbeResult(False)])
    assert pool.load("a") is None
