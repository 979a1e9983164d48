"""A whole gateway in the test's own process, over emulated engines or scripted ones.

Rule: every port is free at the time, every test begins with an empty store, and nothing waits for real time: probes
come once, patience is long, engines run fast, unless the test says otherwise.
"""

import asyncio
import hashlib
import json
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench import kept
from config import load
from config.model import Config
from config.settings import Settings
from gateway.app import Gateway, running
from gateway.pools import Wire
from loadtest.engine import Engine, serve
from loadtest.engine import Settings as EngineSettings

KEY = "sk-test-acme"
OTHER_KEY = "sk-test-zeta"
FAST = EngineSettings(served_model_name="demo", speed=200, max_model_len=32_768, enable_embeddings=True)
ANY: Mapping[str, Sequence[str]] = {"any": ("one", "two")}
SPLIT: Mapping[str, Sequence[str]] = {"prefill": ("prefill-1", "prefill-2"), "decode": ("decode-1", "decode-2")}
"""Pools by name, each with the names of its replicas. A pool is for the phase it is named after."""

Change = Callable[[dict[str, Any]], None]


@dataclass(slots=True)
class House:
    """A running gateway, its engines by replica name, and what a test asks of it."""

    gateway: Gateway
    http: httpx.AsyncClient
    engines: dict[str, Engine] = field(default_factory=dict)

    @property
    def url(self) -> str:
        """The base URL for an SDK."""
        return f"http://127.0.0.1:{self.gateway.port}/v1"

    async def chat(self, content: str = "Hello!", *, key: str = KEY, **fields: Any) -> httpx.Response:
        """A chat request of one message, the answer read to its end."""
        body = {"model": "demo", "messages": [{"role": "user", "content": content}], "max_tokens": 8} | fields
        return await self.http.post("/chat/completions", json=body, headers={"authorization": f"Bearer {key}"})

    async def send(
        self, content: str = "Hello!", *, key: str = KEY, **fields: Any
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The same on a connection of its own, nothing read yet: for clients that misbehave."""
        body = {"model": "demo", "messages": [{"role": "user", "content": content}], "max_tokens": 8} | fields
        return await self.send_raw(json.dumps(body).encode(), f"authorization: Bearer {key}")

    async def send_raw(
        self, body: bytes, *lines: str, path: str = "/v1/chat/completions"
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """These bytes as the body, these header lines beside those that must be there."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.gateway.port)
        must = ["host: gateway", "content-type: application/json", f"content-length: {len(body)}"]
        writer.write("\r\n".join([f"POST {path} HTTP/1.1", *must, *lines, "", ""]).encode() + body)
        return reader, writer

    async def metric(self, name: str, **labels: str) -> float:
        """The sum of a metric's samples that carry these labels, scraped as an operator would."""
        shown = await self.http.get(f"http://127.0.0.1:{self.gateway.admin_port}/metrics")
        return sampled(shown.text, name, **labels)

    async def engine_metric(self, engine: str, name: str, **labels: str) -> float:
        """The same of an engine."""
        shown = await self.http.get(f"{self.engines[engine].url}/metrics")
        return sampled(shown.text, name, **labels)

    async def charged(self, tenant: str = "acme", bucket: str = "tokens:total_tokens") -> int:
        """Units in use in a tenant's bucket. The limits here flow back so slowly that this is what was charged."""
        return -(-(await kept.in_use(self.gateway.store, tenant)).get(bucket, 0) // 1_000_000)

    async def leases(self, tenant: str = "acme") -> int:
        """Reservations that nobody has settled."""
        return await kept.running(self.gateway.store, tenant)

    async def quiet(self) -> None:
        """Wait until no request is being served."""
        await until(lambda: not self.gateway.requests and not self._busy())

    async def nothing_left(self, defects: int = 0) -> None:
        """Once quiet: no lease, no reservation, no connection to an engine that is in use, no busy engine, no task
        beyond those that always run, and none that failed but for so many `defects`.
        """
        await self.quiet()
        await until(lambda: not self.gateway.settlements_waiting())
        assert {state.name: state.in_flight for state in self._states() if state.in_flight} == {}
        assert sum(pool.pool.waiting for pool in self.gateway.snapshot.pools.values()) == 0
        assert await self.leases("acme") == await self.leases("zeta") == 0
        for name, engine in self.engines.items():
            assert engine.dead.is_set() or engine.emulator.driver.scheduler.idle, name
        await until(lambda: not any(wire.transport._busy for wire in self._wires()))
        assert await self.metric("kvgate_budget_reserved") == await self.metric("kvgate_requests_open") == 0
        assert await self.metric("kvgate_task_failures_total") == defects
        names = [task.get_name() for task in asyncio.all_tasks()]
        assert not [name for name in names if name.startswith(("request", "hold a history", "undo a lost turn"))]

    async def charged_as_counted(self) -> int:
        """What was charged, which is what the metrics show."""
        kinds = ("prefill", "cached", "decode")
        counted = sum([await self.metric("kvgate_tokens_total", tenant="acme", kind=kind) for kind in kinds])
        assert await self.charged() == counted
        return int(counted)

    def _busy(self) -> bool:
        return any(engine.emulator.serving for engine in self.engines.values() if not engine.dead.is_set())

    def _wires(self) -> list[Wire]:
        return [wire for pool in self.gateway.snapshot.pools.values() for wire in pool._wires.values()]

    def _states(self) -> list[Any]:
        return [state for pool in self.gateway.snapshot.pools.values() for state in pool.pool.states()]


async def until(condition: Callable[[], bool]) -> None:
    """Wait for something that no event tells. The test's own time limit ends a wait in vain."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.002)


def events(body: bytes | str) -> list[str]:
    """The data of every frame of an event stream."""
    text = body.decode() if isinstance(body, bytes) else body
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def sampled(text: str, name: str, **labels: str) -> float:
    """The sum of the samples of that name and those labels; a name that the exposition does not have is a defect."""
    families = list(text_string_to_metric_families(text))
    assert re.sub(r"_(total|count|sum|bucket)$", "", name) in {family.name for family in families}, name
    samples = (sample for family in families for sample in family.samples)
    return sum(sample.value for sample in samples if sample.name == name and labels.items() <= sample.labels.items())


def document(pools: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """A configuration file as data, for replicas by name with their URLs."""
    return {
        "models": {"demo": {"aliases": ["gpt-4o-mini"], "geometry": "llama-3.1-8b"}},
        "pools": {name: pool(name, replicas) for name, replicas in pools.items()},
        "routing": {"probe_interval": "1h"},
        "tiers": {"standard": {"budgets": [{"name": "tokens", "dimension": "total_tokens"} | GENEROUS]}},
        "tenants": {"acme": tenant(KEY), "zeta": tenant(OTHER_KEY)},
    }


GENEROUS = {"amount": "1g", "per": "1000000d"}
"""A limit that is never reached and flows back by a token in a minute and a half."""


def pool(name: str, replicas: Mapping[str, str]) -> dict[str, Any]:
    return {
        "phase": name,
        "models": ["demo"],
        "hardware": "h100-sxm",
        "features": {"prompt_tokens_details": True},
        "replicas": [{"name": replica, "url": url} for replica, url in replicas.items()],
    }


def tenant(key: str) -> dict[str, Any]:
    return {"tier": "standard", "keys": [{"name": "main", "sha256": hashlib.sha256(key.encode()).hexdigest()}]}


def configured(pools: Mapping[str, Mapping[str, str]], change: Change | None) -> Config:
    data = document(pools)
    if change is not None:
        change(data)
    return load.parse(yaml.safe_dump(data))


@asynccontextmanager
async def gateway(
    pools: Mapping[str, Mapping[str, str]],
    store_url: str | None,
    change: Change | None = None,
    *,
    flush: bool = True,
    **settings: Any,
) -> AsyncIterator[House]:
    """A gateway over replicas by pool and name. `change` edits the configuration, `settings` those of the process.

    `store_url` None: a store of its own. `flush` False leaves in the store what stands there.
    """
    with tempfile.TemporaryDirectory(prefix="kvgate-") as folder:
        usual: dict[str, Any] = {"store_timeout_seconds": 20, "drain_seconds": 5, "secret": "s" * 32}
        given = usual | {"port": 0, "admin_port": 0, "store_url": store_url, "data_dir": Path(folder)} | settings
        async with (
            httpx.AsyncClient(timeout=30, verify=False, trust_env=False) as http,  # outlives the gateway's draining
            running(configured(pools, change), Settings(**given)) as started,
        ):
            http.base_url = f"http://127.0.0.1:{started.port}/v1"
            if flush:
                await started.store.command("FLUSHALL")
            yield House(started, http)


@asynccontextmanager
async def house(
    store_url: str | None,
    pools: Mapping[str, Sequence[str]] = ANY,
    change: Change | None = None,
    *,
    engine: EngineSettings = FAST,
    **settings: Any,
) -> AsyncIterator[House]:
    """A gateway with emulated engines of its own behind it."""
    async with AsyncExitStack() as ends:
        names = [name for replicas in pools.values() for name in replicas]
        engines = {name: await ends.enter_async_context(serve(engine)) for name in names}
        urls = {pool: {name: engines[name].url for name in replicas} for pool, replicas in pools.items()}
        opened = await ends.enter_async_context(gateway(urls, store_url, change, **settings))
        opened.engines = engines
        yield opened
