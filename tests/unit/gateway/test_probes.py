"""How replicas are asked how they are: what counts as alive, and what is only not known."""

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from backends.health import ProbeResult
from gateway.clock import monotonic
from gateway.pools import ServedPool
from gateway.probes import Prober
from tests.unit.gateway.engines import closed, whole
from tests.unit.gateway.samples import config

MODELS = whole(b'{"object":"list","data":[{"id":"a","max_model_len":4096},{"id":"b","max_model_len":8192},{"id":"c"}]}')
METRICS = whole(b'vllm:num_requests_running{model_name="m"} 3.0\nvllm:num_requests_waiting{model_name="m"} 2.0\n')
MISSING = whole(b"", b"404 Not Found")
WELL: Mapping[str, bytes] = {"/health": whole(b""), "/v1/models": MODELS, "/metrics": METRICS}


@dataclass
class Server:
    """Answers by path and closes; a path it does not have is never answered."""

    answers: dict[str, bytes]
    asked: list[str] = field(default_factory=list)
    writers: list[asyncio.StreamWriter] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.writers.append(writer)
        path = (await reader.readuntil(b"\r\n\r\n")).split(b" ")[1].decode()
        self.asked.append(path)
        if path in self.answers:
            writer.write(self.answers[path])
        else:
            await reader.read()
        writer.close()


@asynccontextmanager
async def probing(answers: Mapping[str, bytes], patience_seconds: float = 30.0) -> AsyncIterator[tuple[Server, Prober]]:
    """A server and what probes it."""
    engine = Server(dict(answers))
    async with await asyncio.start_server(engine.serve, "127.0.0.1", 0) as listener:
        port = listener.sockets[0].getsockname()[1]
        loaded = config(("pools/main/replicas", [f"http://127.0.0.1:{port}"]))
        served = ServedPool(loaded.pools["main"], loaded.routing, monotonic, {})
        yield engine, Prober(served, patience_seconds)
        await served.close()
        await closed(engine.writers)


async def probed(probe: Prober) -> ProbeResult:
    return await probe(probe.served.pool.replicas[0])


async def test_a_replica_that_is_well_tells_its_limit_and_load() -> None:
    async with probing(WELL) as (engine, probe):
        seen = await probed(probe)
        assert (seen.alive, seen.max_model_len) == (True, 4096)
        assert seen.load is not None and (seen.load.running, seen.load.waiting) == (3, 2)
        await probed(probe)
        assert engine.asked == ["/health", "/v1/models", "/metrics", "/health", "/metrics"]


async def test_a_replica_that_came_back_is_asked_for_its_limit_again() -> None:
    async with probing(WELL) as (engine, probe):
        await probed(probe)
        engine.answers["/health"] = whole(b"", b"503 Service Unavailable")
        assert not (await probed(probe)).alive
        engine.answers |= {"/health": whole(b""), "/v1/models": MODELS.replace(b"4096", b"2048")}
        assert (await probed(probe)).max_model_len == 2048


async def test_a_server_without_a_health_check_lives_by_its_models() -> None:
    async with probing({**WELL, "/health": MISSING, "/metrics": MISSING}) as (_, probe):
        assert await probed(probe) == ProbeResult(True, 4096)
    async with probing({"/health": MISSING, "/v1/models": MISSING}) as (_, probe):
        assert not (await probed(probe)).alive


async def test_a_load_that_is_not_told_is_not_known() -> None:
    for metrics in (MISSING, whole(b"\xff\xfe not metrics"), b""):
        async with probing({**WELL, "/metrics": metrics}) as (_, probe):
            seen = await probed(probe)
            assert (seen.alive, seen.max_model_len) == (True, 4096)
            assert seen.load is None or seen.load.running is None


async def test_a_limit_that_cannot_be_read_is_not_known() -> None:
    for models in (MISSING, whole(b"[]"), whole(b'{"data":[{}]}'), whole(b'{"data":[]}'), whole(b"\xff"), b""):
        async with probing({**WELL, "/v1/models": models}) as (_, probe):
            seen = await probed(probe)
            assert (seen.alive, seen.max_model_len) == (True, None)
            assert seen.load is not None


async def test_a_replica_that_hangs_is_not_alive() -> None:
    async with probing({}, patience_seconds=0.05) as (engine, probe):
        assert await probed(probe) == ProbeResult(alive=False)
        assert engine.asked == ["/health"]


async def test_a_replica_that_hangs_at_its_metrics_is_alive() -> None:
    answers = {path: answer for path, answer in WELL.items() if path != "/metrics"}
    async with probing(answers, patience_seconds=0.5) as (_, probe):
        assert await probed(probe) == ProbeResult(True, 4096)


async def test_nobody_listening_is_not_alive() -> None:
    async with probing(WELL) as (_, probe):
        pass
    assert not (await probed(probe)).alive


async def test_why_a_replica_does_not_answer_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async with probing(WELL) as (engine, probe):
        caplog.set_level(logging.INFO, "kvgate")
        await probed(probe)
        assert said(caplog) == []
        engine.answers["/health"] = whole(b"", b"503 X")
        for _ in range(2):
            await probed(probe)
        assert said(caplog) == [], "a lost packet or two change nothing"
        for _ in range(3):
            await probed(probe)
        assert said(caplog) == ["replica does not answer: it answers 503"]
        engine.answers["/health"] = whole(b"")
        await probed(probe)
        await probed(probe)
        assert said(caplog)[1:] == ["replica answers again: "]
        await closed(engine.writers)


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the log says, and why."""
    return [f"{record.getMessage()}: {record.__dict__['fields'].get('why', '')}" for record in caplog.records]
