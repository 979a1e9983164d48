"""Two gateway processes on one store, 200 clients at once: a limit of requests admits exactly so many."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from bench import kept
from gateway.embedded import EmbeddedServer
from gateway.store import Store
from loadtest.engine import serve
from tests import program
from tests.house import FAST, KEY, document

CLIENTS = 200
ADMITTED = 137
QUOTA = {"name": "calls", "dimension": "requests", "amount": ADMITTED, "every": "month"}
RATE = {"name": "calls", "dimension": "requests", "amount": ADMITTED, "per": "1000000d"}


def configuration(folder: Path, engine: str, *budgets: dict[str, Any]) -> Path:
    data = document({"any": {"one": engine}})
    data["pools"]["any"]["max_concurrent"] = CLIENTS
    data["tiers"]["standard"]["budgets"] = list(budgets)
    file = folder / "kvgate.yaml"
    file.write_text(yaml.safe_dump(data))
    return file


async def called(http: httpx.AsyncClient, port: int) -> int:
    answer = await http.post(
        f"http://127.0.0.1:{port}/v1/chat/completions",
        json={"model": "demo", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4},
        headers={"authorization": f"Bearer {KEY}"},
    )
    return answer.status_code


@pytest.mark.parametrize("limit", [QUOTA, RATE], ids=["quota", "rate"])
async def test_exactly_so_many_are_admitted(
    valkey: EmbeddedServer, store: Store, tmp_path: Path, limit: dict[str, Any]
) -> None:
    patience = {"KVGATE_STORE_URL": valkey.url, "KVGATE_STORE_TIMEOUT_SECONDS": "30", "KVGATE_SECRET": "s" * 32}
    async with serve(FAST) as engine, httpx.AsyncClient(timeout=60, trust_env=False, limits=httpx.Limits()) as http:
        file = configuration(tmp_path, engine.url, limit)
        async with program.serving(file, **patience) as first, program.serving(file, **patience) as other:
            ports = (first.port, other.port)
            asked = [called(http, ports[number % 2]) for number in range(CLIENTS)]
            statuses = Counter(await asyncio.gather(*asked))
            assert statuses == {200: ADMITTED, 429: CLIENTS - ADMITTED}
        assert [round(amount / 1e6) for amount in (await kept.in_use(store)).values()] == [ADMITTED]
        assert await kept.leases(store) == []
        assert await store.command("XLEN", "kvgate:1:{acme}:usage:acme") == ADMITTED
