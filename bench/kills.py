"""`python -m bench.kills --schedules 1000`: gateways, engines and the store are killed, the books must be right.

Rule: a schedule is a burst of calls during which one or two processes get SIGKILL at random moments and are started
again. When all is quiet, what the store counts is what its records say, and what the rule says of calls whose gateway
died; no call is charged twice, and no reservation outlives its lease. A schedule that is not so is named with its seed.
"""

import argparse
import asyncio
import hashlib
import os
import random
import re
import signal
import socket
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench import kept
from budgets.ledger import Grant, Scope, reserve, settle
from budgets.limit import Limit
from budgets.record import Record, decoded
from gateway import embedded, guarded
from gateway.store import Store, StoreError
from gateway.store_call import StoreSettings
from gateway.tasks import Tasks

KEY: Final = "sk-kills"
TREE: Final = "kills"
SPACE: Final = f"kvgate:1:{{{TREE}}}"
CLIENTS: Final = 12
CALLS: Final = 3
PATIENT: Final = StoreSettings(call_timeout_seconds=30.0, connect_timeout_seconds=30.0)
"""For those who judge: only gateways must not wait for the store."""
PATIENCE_SECONDS: Final = 90.0
PARTS: Final = 10**6


class NotRightError(Exception):
    """The books are wrong after a schedule."""


@dataclass(slots=True)
class Process:
    """A process of ours that is killed and started again on the same port."""

    name: str
    port: int
    command: Sequence[str]
    folder: Path
    child: guarded.Child | None = None

    def start(self) -> None:
        self.child = guarded.start(self.command, log=self.folder / f"{self.name}.log")

    def kill(self) -> None:
        """SIGKILL to the process itself, not to the shell that guards it."""
        assert self.child is not None
        for pid in children(self.child.pid):
            if b"gateway" in command_of(pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        self.child.close(PATIENCE_SECONDS)

    def close(self) -> None:
        if self.child is not None:
            self.child.close(1.0)


@dataclass(slots=True)
class Cluster:
    """The store, two gateways, two engines, and what their clients have seen."""

    folder: Path
    ends: ExitStack
    gateways: list[Process] = field(default_factory=list)
    engines: list[Process] = field(default_factory=list)
    store: embedded.EmbeddedServer | None = None
    begun: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    killed: Counter[str] = field(default_factory=Counter)
    may_be_lost: int = 0

    async def start(self) -> None:
        self.ends.callback(self.close)
        self.store = embedded.start(self.folder / "store")
        await self.command("CONFIG", "SET", "appendfsync", "always")
        program = [sys.executable, "-m", "gateway"]
        for number in range(2):
            port = free_port()
            options = ["--port", str(port), "--speed", "20", "--served-model-name", "demo"]
            self.engines.append(Process(f"engine-{number}", port, [*program, "engine", *options], self.folder))
        file = self.folder / "kvgate.yaml"
        file.write_text(yaml.safe_dump(self._configuration()))
        for number in range(2):
            port, admin = free_port(), free_port()
            settings = {
                "KVGATE_PORT": str(port),
                "KVGATE_ADMIN_PORT": str(admin),
                "KVGATE_STORE_URL": self.store.url,
                "KVGATE_STORE_TIMEOUT_SECONDS": "1",
                "KVGATE_SECRET": "s" * 32,
                "KVGATE_DATA_DIR": str(self.folder / f"data-{number}"),
            }
            command = ["env", *(f"{name}={value}" for name, value in settings.items()), *program]
            process = Process(f"gateway-{number}", port, [*command, "serve", "-c", str(file)], self.folder)
            self.gateways.append(process)
        for process in (*self.engines, *self.gateways):
            process.start()
        await self.ready()

    def close(self) -> None:
        for process in (*self.gateways, *self.engines):
            process.close()
        if self.store is not None:
            self.store.close()

    def _configuration(self) -> Mapping[str, object]:
        replicas = [f"http://127.0.0.1:{engine.port}" for engine in self.engines]
        budgets = [
            {"name": "tokens", "dimension": "total_tokens", "amount": "1g", "every": "month"},
            {"name": "calls", "dimension": "requests", "amount": "1g", "every": "month"},
            {"name": "lanes", "dimension": "concurrent_calls", "amount": "10k"},
        ]
        digest = hashlib.sha256(KEY.encode()).hexdigest()
        return {
            "models": {"demo": {"geometry": "llama-3.1-8b"}},
            "pools": {"any": {"models": ["demo"], "hardware": "h100-sxm", "replicas": replicas}},
            "routing": {"probe_interval": "200ms"},
            "tiers": {"standard": {"budgets": budgets, "usage_records": "100M"}},
            "tenants": {"kills": {"tier": "standard", "keys": [{"name": "main", "sha256": digest}]}},
        }

    async def command(self, *parts: str | bytes | int) -> Any:
        """One command to the store, on a connection of its own."""
        assert self.store is not None
        tasks = Tasks()
        store = await Store.connect(self.store.url, tasks, PATIENT)
        try:
            return await store.command(*parts, timeout_seconds=30.0)
        finally:
            store.close()
            await tasks.close()

    async def ready(self) -> None:
        """Wait until both gateways serve and both engines are in use."""
        async with aiohttp.ClientSession() as http:
            for gateway in self.gateways:
                while (await metrics_of(http, gateway)).get("kvgate_replica_up") != len(self.engines):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)

    async def quiet(self) -> None:
        """Wait until nothing runs and every settlement has reached the store."""
        await self.ready()
        async with aiohttp.ClientSession() as http:
            for gateway in self.gateways:
                while True:
                    seen = await metrics_of(http, gateway)
                    busy = seen.get("kvgate_requests_open", 1) + seen.get("kvgate_settlements_waiting", 1)
                    if not busy and seen.get("kvgate_store_available"):
                        break
                    await asyncio.sleep(0.05)

    # What a schedule does.

    async def schedule(self, seed: int) -> None:
        """Calls, and one or two kills among them; then the books are looked at. Raises `NotRightError`."""
        rng = random.Random(seed)
        victims = sorted(set(rng.sample(("store", "store", "gateway", "engine"), rng.choice((1, 1, 2)))))
        if {"store", "gateway"} <= set(victims):  # what waits for the store dies with a gateway
            self.may_be_lost += CLIENTS * CALLS
        killing = [self._kill(victim, rng.random() * 0.3, rng) for victim in victims]
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(30)) as http:
            calling = [self._client(http, random.Random(f"{seed} {number}")) for number in range(CLIENTS)]
            async with asyncio.timeout(PATIENCE_SECONDS):
                await asyncio.gather(*killing, *calling)
                await self.quiet()
                await self.judge(seed)

    async def _kill(self, victim: str, after_seconds: float, rng: random.Random) -> None:
        await asyncio.sleep(after_seconds)
        self.killed[victim] += 1
        if victim == "store":
            await self._kill_store(rng.random() * 0.2)
            return
        process = rng.choice(self.gateways if victim == "gateway" else self.engines)
        await asyncio.to_thread(process.kill)
        process.start()

    async def _kill_store(self, away_seconds: float) -> None:
        found = re.search(rb"process_id:(\d+)", await self.command("INFO", "server"))
        assert found is not None
        os.kill(int(found[1]), signal.SIGKILL)
        await asyncio.sleep(away_seconds)
        assert self.store is not None
        self.store.close()
        self.store = await asyncio.to_thread(embedded.start, self.folder / "store")
        await self.command("CONFIG", "SET", "appendfsync", "always")

    async def _client(self, http: aiohttp.ClientSession, rng: random.Random) -> None:
        for _ in range(CALLS):
            await asyncio.sleep(rng.random() * 0.1)
            self.begun += 1
            try:
                self.outcomes[await self._call(http, rng)] += 1
            except (aiohttp.ClientError, TimeoutError) as error:
                self.outcomes[type(error).__name__] += 1

    async def _call(self, http: aiohttp.ClientSession, rng: random.Random) -> str:
        stream = rng.random() < 0.6
        body = {"model": "demo", "stream": stream, "max_tokens": rng.randint(4, 200)}
        messages = [{"role": "user", "content": f"words {rng.random()} " * rng.randint(1, 40)}]
        async with http.post(
            f"http://127.0.0.1:{rng.choice(self.gateways).port}/v1/chat/completions",
            json=body | {"messages": messages},
            headers={"authorization": f"Bearer {KEY}"},
        ) as answer:
            text = await answer.text()
        if answer.status != 200:
            return str(answer.status)
        return "done" if not stream or "[DONE]" in text else "broken"

    # What must be true afterwards.

    async def judge(self, seed: int) -> None:
        """Raises `NotRightError` with what is wrong."""
        await self._expire()
        leases, stored = await self._kept()
        records = [decoded(fields[1]) for _, fields in await self.command("XRANGE", f"{SPACE}:usage:kills", "-", "+")]
        in_use: Counter[str] = Counter()
        for name, amount in stored.items():
            in_use[name.split(":")[0]] += amount
        slots = await self.command("ZCOUNT", f"{SPACE}:slots:lanes:concurrent_calls", 2, "+inf")
        self._compare(seed, leases, [each for each in records if each.label == "client"], in_use, slots)

    def _compare(
        self, seed: int, leases: list[kept.Lease], records: list[Record], in_use: Mapping[str, int], slots: int
    ) -> None:
        died = [lease for lease in leases if lease.state == "closed"]
        stays: Counter[str] = Counter()
        for lease in died:
            for name, amount in lease.kept.items():
                stays[name.split(":")[0]] += amount
        used = {
            "tokens": sum(each.prefill_tokens + each.cached_tokens + each.decode_tokens for each in records) * PARTS,
            "calls": len(records) * PARTS,
        }
        right: dict[str, Callable[[], bool]] = {
            f"tokens in use are {in_use['tokens']}, recorded {used['tokens']} and kept of the dead {stays['tokens']}": (
                lambda: in_use["tokens"] == used["tokens"] + stays["tokens"]
            ),
            f"calls in use are {in_use['calls']}, recorded {used['calls']} and kept of the dead {stays['calls']}": (
                lambda: in_use["calls"] == used["calls"] + stays["calls"]
            ),
            f"{len(records)} records of {self.begun} calls: one was charged twice": lambda: len(records) <= self.begun,
            f"{self.outcomes['done']} answers, but {len(records)} records and {len(died)} dead": (
                lambda: self.outcomes["done"] <= len(records) + len(died) + self.may_be_lost
            ),
            "a reservation has outlived its lease": lambda: all(lease.state != "runs" for lease in leases),
            f"{slots} slots are taken by nobody": lambda: not slots,
        }
        wrong = [what for what, holds in right.items() if not holds()]
        if wrong:
            raise NotRightError(f"after schedule {seed}: {'; '.join(wrong)}")

    async def _expire(self) -> None:
        """As if the leases of the dead had run out, which a reservation then closes, 512 at a time."""
        assert self.store is not None
        tasks = Tasks()
        store = await Store.connect(self.store.url, tasks, PATIENT)
        open_leases = [lease.id for lease in await kept.leases(store, TREE) if lease.state == "runs"]
        for id in open_leases:
            await kept.run_out(store, id, tree=TREE)
            await store.command("ZADD", f"{SPACE}:slots:lanes:concurrent_calls", "XX", 1, id)
        touch = Scope("kills", (Limit(name="touch", dimension="cached_tokens", amount=10, per_seconds=1e9),))
        for _ in range(1 + len(open_leases) // 512):
            granted = await reserve(store.run, touch, {})
            assert isinstance(granted, Grant)
            await settle(store.run, granted, {})
        store.close()
        await tasks.close()

    async def _kept(self) -> tuple[list[kept.Lease], dict[str, int]]:
        """Leases, and what is in use by bucket."""
        assert self.store is not None
        tasks = Tasks()
        store = await Store.connect(self.store.url, tasks, PATIENT)
        try:
            return await kept.leases(store, TREE), await kept.in_use(store, TREE)
        finally:
            store.close()
            await tasks.close()


async def metrics_of(http: aiohttp.ClientSession, gateway: Process) -> Mapping[str, float]:
    """The sums of a gateway's metrics by name; nothing while it does not answer."""
    admin = next(part for part in gateway.command if part.startswith("KVGATE_ADMIN_PORT="))
    try:
        async with http.get(f"http://127.0.0.1:{admin.partition('=')[2]}/metrics") as answer:
            text = await answer.text()
    except (aiohttp.ClientError, TimeoutError):
        return {}
    sums: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            sums[sample.name] += sample.value  # type: ignore[assignment]  # a Counter of floats
    return sums


def children(pid: int) -> list[int]:
    """The processes that a process has started."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def command_of(pid: int) -> bytes:
    """The command line of a process; nothing of one that has ended since it was seen."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def run(schedules: range, say: Callable[[str], None] = lambda _: None) -> Cluster:
    """Every schedule in turn on one set of processes. Raises `NotRightError`, `StoreError` or `TimeoutError`."""
    with tempfile.TemporaryDirectory(prefix="kvgate-kills-") as folder, ExitStack() as ends:
        cluster = Cluster(Path(folder), ends)
        await cluster.start()
        for seed in schedules:
            await cluster.schedule(seed)
            say(f"{seed}: killed {dict(cluster.killed)}, calls {dict(cluster.outcomes.most_common())}")
        return cluster


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schedules", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        asyncio.run(run(range(options.seed, options.seed + options.schedules), print))
    except (NotRightError, StoreError, TimeoutError) as error:
        sys.exit(f"not right: {type(error).__name__} {error}")


if __name__ == "__main__":
    main()
