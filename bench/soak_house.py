"""The processes of a soak: the store, four engines that meet faults, and the gateway that is watched.

Rule: each ends with this program, however that ends.
"""

import asyncio
import hashlib
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import aiohttp
import yaml
from prometheus_client.parser import text_string_to_metric_families

from bench import kept
from gateway import embedded, guarded
from gateway.store import Store, StoreSettings
from gateway.tasks import Tasks

KEY: Final = "sk-soak"
FAULTS: Final = ("refuse=0.01", "status=0.01,code:500", "slow=0.01,seconds:1", "cut=0.01,after:3", "error=0.01,after:2")
ENGINES: Final = 4


class House:
    """The processes of one run. `pid` is the gateway's."""

    def __init__(self, folder: Path, base_port: int, speed: float) -> None:
        self._folder = folder
        self._engines = range(base_port + 10, base_port + 10 + ENGINES)
        self._port, self._admin_port = base_port, base_port + 1
        self._speed = speed
        self.url = f"http://127.0.0.1:{self._port}"
        self.pid = 0
        self.store_url = ""
        self._gateway: guarded.Child | None = None

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
        settings = {
            "KVGATE_PORT": self._port,
            "KVGATE_ADMIN_PORT": self._admin_port,
            "KVGATE_STORE_URL": store.url,
            "KVGATE_DATA_DIR": self._folder / "data",
            "KVGATE_LOG_LEVEL": "warning",
        }
        command = ["env", *(f"{name}={value}" for name, value in settings.items())]
        command += [sys.executable, "-m", "gateway", "serve", "-c", str(file)]
        self._gateway = guarded.start(command, log=self._folder / "gateway.log")
        ends.callback(self._gateway.close)

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
        """Wait for the gateway and remember its process. Raises `SystemExit` with what it said if it does not start."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._gateway is not None and self._gateway.alive():
            try:
                async with http.get(f"{self.url}/readyz") as answer:
                    if answer.status == 200:
                        self.pid = listener(self._port)
                        return
            except aiohttp.ClientError:
                pass
            await asyncio.sleep(0.1)
        said = [line for name in ("engines", "gateway") for line in self._log(name)]
        raise SystemExit("the gateway did not start: " + ("; ".join(said[-3:]) or "it said nothing for a minute"))

    def _log(self, name: str) -> list[str]:
        file = self._folder / f"{name}.log"
        return file.read_text(errors="replace").splitlines() if file.exists() else []

    async def metrics(self, http: aiohttp.ClientSession) -> Mapping[str, float]:
        """The sums of the gateway's metrics, by name; of what is remembered also by name and `what`."""
        sums: Counter[str] = Counter()
        async with http.get(f"http://127.0.0.1:{self._admin_port}/metrics") as answer:
            for family in text_string_to_metric_families(await answer.text()):
                for sample in family.samples:
                    names = (sample.name, *([f"{sample.name} {what}"] if (what := sample.labels.get("what")) else []))
                    for name in names:
                        sums[name] += sample.value  # type: ignore[assignment]  # a Counter of floats
        return sums

    async def reservations(self) -> int:
        """Reservations that nobody has settled and no lease has closed."""
        tasks = Tasks()
        store = await Store.connect(self.store_url, tasks, StoreSettings(call_timeout_seconds=5.0))
        found = await kept.running(store, "soak")
        store.close()
        await tasks.close()
        return found


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
