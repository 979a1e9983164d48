"""Event: one of several workers is killed. The others go on, it is started again, and nothing outlives the whole."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from bench import kept
from gateway.embedded import EmbeddedServer
from gateway.store import Store
from tests.house import KEY, document, sampled, until
from tests.upstream import CHUNKED, chunk, frame, stalls_after, upstream

PATIENCE_SECONDS = 60.0


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "it did not come"
        time.sleep(0.05)


class Served:
    """`kvgate serve` with two workers, as its user starts it."""

    def __init__(
        self, folder: Path, store_url: str, ports: tuple[int, int], engine_url: str = "http://127.0.0.1:9"
    ) -> None:
        self.port, self.admin_port = ports
        file = folder / "kvgate.yaml"
        file.write_text(yaml.safe_dump(document({"any": {"one": engine_url}})))
        environ = os.environ | {
            "KVGATE_PORT": str(self.port),
            "KVGATE_ADMIN_PORT": str(self.admin_port),
            "KVGATE_STORE_URL": store_url,
            "KVGATE_DATA_DIR": str(folder / "data"),
            "KVGATE_WORKERS": "2",
        }
        command = [sys.executable, "-m", "gateway", "serve", "-c", str(file)]
        self.log = folder / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)

    def ready(self) -> str:
        try:
            return httpx.get(f"http://127.0.0.1:{self.admin_port}/readyz", timeout=5).text
        except httpx.TransportError:
            return ""

    def metrics(self) -> str:
        return httpx.get(f"http://127.0.0.1:{self.admin_port}/metrics").text

    def workers(self) -> list[int]:
        """The process ids of the workers, read where the system tells whose child is whose."""
        listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True).stdout
        pairs = (map(int, line.split()) for line in listed.splitlines()[1:])
        return [pid for pid, parent in pairs if parent == self.process.pid]


@pytest.fixture
def served(valkey: EmbeddedServer, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]) -> Iterator[Served]:
    ports = (unused_tcp_port_factory(), unused_tcp_port_factory())
    served = Served(tmp_path, valkey.url, ports)
    try:
        yield served
    finally:
        served.process.kill()
        served.process.wait()


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def test_a_killed_worker_is_replaced_while_the_other_serves(served: Served) -> None:
    wait_for(lambda: served.ready().startswith("2 of 2"))
    first, other = served.workers()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: gone(first))
    wait_for(lambda: served.ready().startswith("2 of 2"))
    assert other in served.workers()
    assert first not in served.workers()
    models = httpx.get(f"http://127.0.0.1:{served.port}/v1/models", headers={"authorization": f"Bearer {KEY}"})
    assert models.status_code == 200
    page = httpx.get(f"http://127.0.0.1:{served.admin_port}/metrics").text
    assert set(re.findall(r'kvgate_store_available\{worker="(\d)"\} 1\.0', page)) == {"0", "1"}
    assert "worker ended" in served.log.read_text()


async def test_a_call_on_it_is_cut_its_engine_let_go_and_its_reservation_left_to_its_lease(
    valkey: EmbeddedServer, store: Store, tmp_path: Path, unused_tcp_port_factory: Callable[[], int]
) -> None:
    async with upstream(stalls_after(CHUNKED, chunk(frame("one")))) as up:
        ports = (unused_tcp_port_factory(), unused_tcp_port_factory())
        served = Served(tmp_path, valkey.url, ports, up.url)
        try:
            await until(lambda: served.ready().startswith("2 of 2"))
            reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
            body = json.dumps(
                {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
            ).encode()
            lines = (f"authorization: Bearer {KEY}", "content-type: application/json", f"content-length: {len(body)}")
            head = "\r\n".join(("POST /v1/chat/completions HTTP/1.1", "host: gateway", *lines, "", ""))
            writer.write(head.encode() + body)
            await reader.readuntil(b"one")
            assert await kept.running(store, "acme") == 1
            for pid in served.workers():
                os.kill(pid, signal.SIGKILL)
            assert not (await reader.read()).endswith(b"0\r\n\r\n"), "what is broken off does not look complete"
            await up.peers[0].gone.wait()
            await until(lambda: served.ready().startswith("2 of 2"))
            page = await asyncio.to_thread(served.metrics)
            assert sampled(page, "kvgate_in_flight") == sampled(page, "kvgate_budget_reserved") == 0
            assert sampled(page, "kvgate_requests_open") == 0
            assert await kept.running(store, "acme") == 1, "nobody is left to settle it: its lease ends it"
            writer.close()
        finally:
            served.process.kill()
            served.process.wait()


def test_a_worker_that_starts_survives_being_told_to_reload(served: Served) -> None:
    wait_for(lambda: served.ready().startswith("2 of 2"))
    first, _ = served.workers()
    os.kill(first, signal.SIGKILL)
    wait_for(lambda: gone(first))

    def ready_again() -> bool:
        served.process.send_signal(signal.SIGHUP)
        return served.ready().startswith("2 of 2")

    wait_for(ready_again)
    assert served.log.read_text().count("worker ended") == 1


def test_sigterm_ends_all_of_them(served: Served) -> None:
    wait_for(lambda: served.ready().startswith("2 of 2"))
    workers = served.workers()
    served.process.send_signal(signal.SIGTERM)
    assert served.process.wait(PATIENCE_SECONDS) == 0
    assert all(gone(pid) for pid in workers)


def test_no_worker_outlives_a_supervisor_that_was_killed(served: Served) -> None:
    wait_for(lambda: served.ready().startswith("2 of 2"))
    workers = served.workers()
    served.process.kill()
    wait_for(lambda: all(gone(pid) for pid in workers))


def test_a_port_that_is_taken_is_one_line(served: Served, tmp_path: Path) -> None:
    wait_for(lambda: served.ready().startswith("2 of 2"))
    environ = os.environ | {"KVGATE_PORT": str(served.port), "KVGATE_ADMIN_PORT": "0", "KVGATE_WORKERS": "2"}
    command = [sys.executable, "-m", "gateway", "serve", "-c", str(tmp_path / "kvgate.yaml")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert re.fullmatch(r"cannot listen on 127\.0\.0\.1:\d+: .+ set KVGATE_PORT to another port\n", done.stderr)
