"""The admin listener over HTTP."""

import socket
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.admin import Admin
from gateway.metrics import Metrics


class Ready:
    reason: str | None = None

    def __call__(self) -> str | None:
        return self.reason


@pytest.fixture
def ready() -> Ready:
    return Ready()


@pytest.fixture
async def client(ready: Ready) -> AsyncIterator[httpx.AsyncClient]:
    metrics = Metrics()
    metrics.estimated.add(3, "acme")
    admin = Admin(metrics, ready)
    port = await admin.start("127.0.0.1", 0)
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client:
        yield client
    await admin.close()


async def test_metrics_are_text_for_a_scraper(client: httpx.AsyncClient) -> None:
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'kvgate_requests_estimated_total{tenant="acme"} 3.0' in answer.text


async def test_alive_is_not_ready(client: httpx.AsyncClient, ready: Ready) -> None:
    assert (await client.get("/readyz")).status_code == 200
    ready.reason = "draining"
    answer = await client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "draining\n")
    assert (await client.get("/healthz")).status_code == 200


@pytest.mark.parametrize("path", ["/", "/v1/models", "/v1/chat/completions"])
async def test_nothing_of_tenants_is_here(client: httpx.AsyncClient, path: str) -> None:
    assert (await client.get(path)).status_code == 404


async def test_a_port_that_is_taken_is_an_os_error() -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        admin = Admin(Metrics(), Ready())
        with pytest.raises(OSError):
            await admin.start("127.0.0.1", holder.getsockname()[1])
        await admin.close()
