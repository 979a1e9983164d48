"""`python -m bench.soak --minutes 10`: a gateway under a steady load with faults, and what is left of it afterwards.

Rule: at the end everything that was taken has been given back: no slot, no reservation, no connection; and memory is no
higher than it was once the first minute had warmed it up. A figure that is not so is a failure, with exit code 1.
"""

import argparse
import asyncio
import hashlib
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from gateway import embedded, guarded
from gateway.store import Store
from gateway.tasks import Tasks

KEY: Final = "sk-soak"
FAULTS: Final = ("refuse=0.01", "status=0.01,code:500", "slow=0.01,seconds:1", "cut=0.01,after:3", "error=0.01,after:2")
ENGINES: Final = 4
LEAVES: Final = 0.02
"""The share of clients that leave in the middle of their stream."""
WARM_SECONDS: Final = 60.0
GROWTH_BYTES: Final = 16 * 1024 * 1024
SETTLE_SECONDS: Final = 5.0


class Soak:
    """The processes, the clients and the books of one run."""

    def __init__(self, folder: Path, base_port: int, speed: float) -> None:
        self._folder = folder
        self._engines = range(base_port + 10, base_port + 10 + ENGINES)
        self._port, self._admin_port = base_port, base_port + 1
        self._speed = speed
        self.outcomes: Counter[str] = Counter()
        self.pid = 0
        self.store_url = ""

    def start(self, ends: ExitStack) -> None:
        """Store, engines, gateway; each ends with this program."""
        store = embedded.start(self._folder / "store")
        ends.callback(store.close)
        self.store_url = store.url
        for port in self._engines:
            command = [sys.executable, "-m", "gateway", "engine", "--port", str(port), "--speed", str(self._speed)]
            faults = [part for fault in FAULTS for part in ("--fault", fault)]
            child = guarded.start([*command, "--served-model-name", "demo", *faults], log=self._folder / "engines.log")
            ends.callback(child.close)
        file = self._folder / "kvgate.yaml"
        file.write_text(yaml.safe_dump(self._configuration()))
        os.environ.update(
            KVGATE_PORT=str(self._port),
            KVGATE_ADMIN_PORT=str(self._admin_port),
            KVGATE_STORE_URL=store.url,
            KVGATE_DATA_DIR=str(self._folder / "data"),
            KVGATE_LOG_LEVEL="warning",
        )
        gateway = guarded.start(
            [sys.executable, "-m", "gateway", "serve", "-c", str(file)], log=self._folder / "gateway.log"
        )
        ends.callback(gateway.close)

    def _configuration(self) -> Mapping[str, object]:
        engines = [f"http://127.0.0.1:{port}" for port in self._engines]
        half = len(engines) // 2
        pool = {"models": ["demo"], "hardware": "h100-sxm", "features": {"prompt_tokens_details": True}}
        budget = {"name": "tokens", "dimension": "total_tokens", "amount": "1g", "per": "1m"}
        tier = {
            "context": {"limit_tokens": "8k", "high_water_tokens": "4k", "low_water_tokens": "2k"},
            "policies": [{"kind": "trim_tool_output", "max_tokens": 512}, {"kind": "keep_recent_turns"}],
            "budgets": [budget],
        }
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        return {
            "models": {"demo": {"geometry": "llama-3.1-8b"}},
            "pools": {
                "prefill": pool | {"phase": "prefill", "replicas": engines[:half]},
                "decode": pool | {"phase": "decode", "replicas": engines[half:]},
            },
            "tiers": {"standard": tier},
            "tenants": {"soak": {"tier": "standard", "keys": [{"name": "main", "sha256": digest}]}},
        }

    async def ready(self, http: aiohttp.ClientSession) -> None:
        """Wait for the gateway and remember its process."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            try:
                async with http.get(f"http://127.0.0.1:{self._port}/readyz") as answer:
                    if answer.status == 200:
                        self.pid = listener(self._port)
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
        raise SystemExit(f"the gateway did not start; see {self._folder / 'gateway.log'}")

    async def client(self, number: int, http: aiohttp.ClientSession, until: float) -> None:
        """One client: conversations that grow turn by turn, now and then left in the middle."""
        rng = random.Random(number)
        while time.monotonic() < until:
            messages: list[Mapping[str, object]] = [{"role": "user", "content": f"conversation {rng.random()}"}]
            for _ in range(rng.randint(1, 8)):
                if time.monotonic() >= until:
                    return
                self.outcomes[await self._turn(rng, http, messages)] += 1
                messages.append({"role": "assistant", "content": "words " * rng.randint(1, 100)})
                messages.append({"role": "user", "content": "more " * rng.randint(1, 300)})

    async def _turn(self, rng: random.Random, http: aiohttp.ClientSession, messages: list[Mapping[str, object]]) -> str:
        stream, leaves = rng.random() < 0.8, rng.random() < LEAVES
        body = {"model": "demo", "messages": messages, "stream": stream, "max_tokens": rng.randint(4, 64)}
        try:
            async with http.post(
                f"http://127.0.0.1:{self._port}/v1/chat/completions", json=body, headers={"api-key": KEY}
            ) as answer:
                if answer.status != 200 or not stream:
                    await answer.read()
                    return str(answer.status)
                return await read_stream(answer, leaves)
        except (aiohttp.ClientError, TimeoutError) as error:
            return type(error).__name__

    async def metrics(self, http: aiohttp.ClientSession) -> Mapping[str, float]:
        """The sums of the gateway's metrics, by name."""
        sums: Counter[str] = Counter()
        async with http.get(f"http://127.0.0.1:{self._admin_port}/metrics") as answer:
            for family in text_string_to_metric_families(await answer.text()):
                for sample in family.samples:
                    sums[sample.name] += sample.value  # type: ignore[assignment]  # a Counter of floats
        return sums

    async def reservations(self) -> int:
        """Reservations that nobody has settled and no lease has closed."""
        tasks = Tasks()
        store = await Store.connect(self.store_url, tasks)
        found = await store.command("ZRANGE", "kvgate:1:{soak}:leases", "0", "-1", timeout_seconds=5.0)
        store.close()
        await tasks.close()
        return sum(not lease.startswith(b"closed;") for lease in found) if isinstance(found, list) else 0


async def read_stream(answer: aiohttp.ClientResponse, leaves: bool) -> str:
    """How a stream ended: `done`, `error event`, `left` by the client, or `silent`, which must not happen."""
    seen = b""
    async for data in answer.content.iter_any():
        seen = (seen + data)[-4096:]
        if leaves:
            answer.close()
            return "left"
    if b"[DONE]" in seen:
        return "done"
    return "error event" if b'"error"' in seen else "silent"


def resident_bytes(pid: int) -> int:
    """Memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def listener(port: int) -> int:
    """The process that listens on a port of this machine."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{row[9]}]" for row in rows if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if os.readlink(link) in inodes:
                return int(link.parts[2])
        except OSError:
            continue
    raise SystemExit(f"nobody listens on port {port}")


async def soaked(minutes: float, clients: int, speed: float, base_port: int) -> bool:
    """Run it and print what was seen; true if nothing was left behind."""
    with tempfile.TemporaryDirectory(prefix="kvgate-soak-") as folder, ExitStack() as ends:
        soak = Soak(Path(folder), base_port, speed)
        soak.start(ends)
        connector = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(connector=connector, timeout=aiohttp.ClientTimeout(total=60)) as http:
            await soak.ready(http)
            until = time.monotonic() + minutes * 60
            driving = Tasks()
            for number in range(clients):
                driving.start(soak.client(number, http, until), name=f"client {number}")
            memory = [await warm(soak, until), *await watched(soak, until)]
            await driving.drain(60.0)
        async with aiohttp.ClientSession() as http:
            await asyncio.sleep(SETTLE_SECONDS)
            return report(soak, memory, await soak.metrics(http), await soak.reservations())


async def warm(soak: Soak, until: float) -> int:
    """Memory after the first minute, or half of a shorter run."""
    await asyncio.sleep(min(WARM_SECONDS, (until - time.monotonic()) / 2))
    return resident_bytes(soak.pid)


async def watched(soak: Soak, until: float) -> list[int]:
    """Memory every ten seconds until the end."""
    seen = []
    while (left := until - time.monotonic()) > 0:
        await asyncio.sleep(min(10.0, left))
        seen.append(resident_bytes(soak.pid))
    return seen


def report(soak: Soak, memory: list[int], metrics: Mapping[str, float], reservations: int) -> bool:
    """Print the account as JSON; true if it is clean."""
    figures = {
        "calls": sum(soak.outcomes.values()),
        "outcomes": dict(soak.outcomes.most_common()),
        "memory_megabytes": {
            "warm": memory[0] / 1e6,
            "half": memory[len(memory) // 2] / 1e6,
            "most": max(memory) / 1e6,
            "end": memory[-1] / 1e6,
        },
        "in_flight": metrics["kvgate_in_flight"],
        "requests_open": metrics["kvgate_requests_open"],
        "waiting": metrics["kvgate_waiting"],
        "reservations_open": reservations,
        "task_failures": metrics.get("kvgate_task_failures_total", 0.0),
        "context_violations": metrics.get("kvgate_context_violations_total", 0.0),
        "store_timeouts": metrics["kvgate_store_timeouts_total"],
        "store_unwritten": metrics.get("kvgate_store_unwritten_total", 0.0),
    }
    print(json.dumps(figures, indent=2))
    left = [name for name in ("in_flight", "requests_open", "waiting", "reservations_open") if figures[name]]
    wrong = [name for name in ("task_failures", "context_violations") if figures[name]]
    grown = memory[-1] - memory[0] > GROWTH_BYTES
    silent = bool(soak.outcomes["silent"])
    for problem in [*left, *wrong, *(["memory grew"] if grown else []), *(["silent ends"] if silent else [])]:
        print(f"not clean: {problem}")
    return not (left or wrong or grown or silent)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--clients", type=int, default=48)
    parser.add_argument("--speed", type=float, default=20.0)
    parser.add_argument("--port", type=int, default=9500)
    options = parser.parse_args()
    clean = asyncio.run(soaked(options.minutes, options.clients, options.speed, options.port))
    sys.exit(0 if clean else 1)


if __name__ == "__main__":
    main()
