"""What stands around a gateway while it is measured: the mock engine, the store, the load generator.

Rule: the mock and the load are one C thread each, so that on their core there is room to show what the gateway can do.
"""

import json
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.accounting import account
from bench.gateways import BENCH, ENGINE, MODEL, Gateway, started
from bench.machine import BenchError, running
from gateway import embedded

PORT: Final = 9000

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Rig:
    """Everything but the gateway, running."""

    gateway_core: int
    engine_pid: int
    store: embedded.EmbeddedServer
    store_pid: int
    folder: Path

    @contextmanager
    def gateway(self, gateway: Gateway) -> Iterator[int | None]:
        """The gateway while the block lasts; its process, None for the engine itself."""
        data = self.folder / gateway.name
        data.mkdir(exist_ok=True)
        with started(gateway, self.gateway_core, {"store": self.store.url, "data": str(data)}) as pid:
            yield pid

    def load(
        self, gateway: Gateway, pid: int | None, options: Sequence[str], timeout_seconds: float = 120.0
    ) -> Figures:
        """Run the load generator once: what it measured, as numbers by name, and what `with_store` adds.

        Raises `BenchError` if the load generator failed or no call went well.
        """
        command = self.load_command(gateway, pid, options)
        calls, store, began = calls_received(), account(self.store_pid).run_seconds, time.monotonic()
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout_seconds)
        except subprocess.TimeoutExpired as error:
            raise BenchError(f"the load did not end within {timeout_seconds:g} s") from error
        elapsed, store = time.monotonic() - began, account(self.store_pid).run_seconds - store
        return with_store(figures(done.stdout), store, calls_received() - calls - 1, elapsed)

    def load_command(self, gateway: Gateway, pid: int | None, options: Sequence[str]) -> list[str]:
        """The command line of the load generator against a gateway."""
        command = [str(BENCH / "bin" / "load"), "-P", str(gateway.port), "-m", MODEL, "-M", str(self.engine_pid)]
        command += [word for header in gateway.headers for word in ("-H", header)]
        command += ["-g", str(pid)] if pid is not None else []
        return [*command, *options]


def figures(output: str) -> dict[str, float]:
    """The numbers of the load generator's line; no TTFT if no stream began while it measured.

    Raises `BenchError`, with its own words, if no call went well.
    """
    try:
        told = json.loads(output)
    except ValueError as error:
        raise BenchError(f"the load generator said {output[-200:]!r}") from error
    if not any(told.get(name) for name in ("ok", "chunks", "active")):  # active: streams that had a chunk
        raise BenchError(f"no call went well: {told.get('err', 'no answer in time')}")
    absent = () if told.get("ttft_n") else ("ttft_p50_us", "ttft_p99_us")
    return {name: float(value) for name, value in told.items() if isinstance(value, int | float) and name not in absent}


def with_store(measured: Figures, store_seconds: float, calls: int, elapsed_seconds: float) -> dict[str, float]:
    """The figures with the store's share, which is known for the whole run, warm-up included.

    `all_s_per_1k` is the CPU time of gateway and store per 1,000 calls, `calls` how many reached the engine, and
    `neighbours` the cores that programs used which have no part in the measurement.
    """
    found = dict(measured) | {"calls": float(calls), "store_s": store_seconds}
    if "run_s_per_1k" in measured and calls:
        found["all_s_per_1k"] = measured["run_s_per_1k"] + store_seconds / calls * 1000
    if "other_cpu" in measured:
        found["neighbours"] = max(0.0, measured["other_cpu"] - store_seconds / elapsed_seconds)
    return found


def calls_received() -> int:
    """How many requests the mock engine has had, this one included. Raises `BenchError` if it is gone."""
    try:
        with urllib.request.urlopen(f"{ENGINE}/stats", timeout=5) as answer:
            return int(json.loads(answer.read())["requests"])
    except OSError as error:
        raise BenchError(f"the mock engine does not answer: {error}") from error


@contextmanager
def rig(gateway_core: int) -> Iterator[Rig]:
    """The mock engine and an empty Valkey on this process's core. Raises `BenchError` if one cannot start."""
    with tempfile.TemporaryDirectory(prefix="kvgate-bench-") as name, _engine() as engine_pid:
        folder = Path(name)
        try:
            store = embedded.start(folder / "store")
        except embedded.EmbeddedError as error:
            raise BenchError(str(error)) from error
        try:
            yield Rig(gateway_core, engine_pid, store, _server_pid(store), folder)
        finally:
            store.close()


@contextmanager
def _engine() -> Iterator[int]:
    with running([str(BENCH / "bin" / "mock"), "-p", str(PORT)]) as process:
        try:
            process.wait(0.3)
        except subprocess.TimeoutExpired:
            yield process.pid
        else:
            raise BenchError(f"the mock engine ended at once: is port {PORT} in use?")


def _server_pid(store: embedded.EmbeddedServer) -> int:
    """The process behind the store's socket, as the kernel tells whoever connects."""
    with socket.socket(socket.AF_UNIX) as link:
        link.connect(store.url.removeprefix("unix://"))
        credentials = link.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    return int(struct.unpack("3i", credentials)[0])
