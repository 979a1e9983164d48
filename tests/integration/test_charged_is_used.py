"""Under a random load: what is charged is what was used, in every dimension, and the store's counters say the same."""

import asyncio
import json
import random
from collections import Counter
from typing import Any

import pytest

from bench import kept
from budgets.limit import DIMENSIONS
from budgets.record import Record, decoded
from gateway.embedded import EmbeddedServer
from tests.house import KEY, OTHER_KEY, House, events, house
from tests.integration.test_gateway_pair import pair

TENANTS = {"acme": KEY, "zeta": OTHER_KEY}
AMOUNTS = {
    "money": "1000",
    "gpu_seconds": "1000h",
    "kv_byte_seconds": "1PB",
    "kv_read_bytes": "1PB",
    "network_bytes": "1PB",
}
COUNTED = [dimension for dimension in DIMENSIONS if dimension != "concurrent_calls"]
FIELDS = {
    "prefill_tokens": "prefill_tokens",
    "cached_tokens": "cached_tokens",
    "decode_tokens": "decode_tokens",
    "kv_read_bytes": "kv_read_bytes",
    "kv_byte_seconds": "kv_byte_seconds",
    "gpu_seconds": "gpu_microseconds",
    "money": "money_nanos",
    "network_bytes": "network_bytes",
}
PARTS = 10**6
"""Counts of pieces are kept in millionths."""


def every_dimension(data: dict[str, Any]) -> None:
    data["pools"]["any"]["price_per_gpu_hour"] = 2.49
    data["tiers"]["standard"]["budgets"] = [
        {"name": dimension, "dimension": dimension, "amount": AMOUNTS.get(dimension, "1g"), "every": "month"}
        for dimension in COUNTED
    ]


async def counters(running: House, tenant: str) -> Counter[str]:
    """What stands in the store of each dimension, in its own parts."""
    found: Counter[str] = Counter()
    for bucket, amount in (await kept.in_use(running.gateway.store, tenant)).items():
        dimension = bucket.split(":")[1]
        scale = 1 if dimension in AMOUNTS else PARTS // 1000 if dimension == "weighted_tokens" else PARTS
        found[dimension] += amount // scale
    return found


async def records(running: House, tenant: str) -> list[Record]:
    found = await running.gateway.store.command("XRANGE", f"kvgate:1:{{{tenant}}}:usage:{tenant}", "-", "+")
    assert isinstance(found, list)
    return [decoded(fields[1]) for _, fields in found]


def charged(records: list[Record]) -> Counter[str]:
    """The sums of what records say, by dimension."""
    sums: Counter[str] = Counter({"requests": len(records)})
    for record in records:
        for dimension, field in FIELDS.items():
            sums[dimension] += getattr(record, field)
    prefill, cached, decode = (sums[kind] for kind in ("prefill_tokens", "cached_tokens", "decode_tokens"))
    sums["total_tokens"] = prefill + cached + decode
    sums["weighted_tokens"] = 1000 * prefill + 100 * cached + 1000 * decode
    return sums


class Client:
    """Calls of a tenant, some of whose streams it does not read to the end; keeps what the engine said was used."""

    def __init__(self, seed: int, tenant: str, gateways: tuple[House, ...]) -> None:
        self.rng = random.Random(f"{seed} {tenant}")
        self.tenant, self.gateways = tenant, gateways
        self.told: Counter[str] = Counter()

    async def run(self, calls: int) -> None:
        for number in range(calls):
            house = self.rng.choice(self.gateways)
            match self.rng.randrange(7):
                case 0:
                    await self._leaves(house)
                case 1:
                    await self._embeds(house)
                case 2:
                    await self._completes(house)
                case _:
                    await self._chats(house, number)

    async def _chats(self, house: House, number: int) -> None:
        stream = self.rng.random() < 0.6
        fields: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
        content = "Some words of a prompt. " * self.rng.choice((1, 1, 20, 100)) + str(number % 3)
        answer = await house.chat(
            content,
            key=TENANTS[self.tenant],
            n=self.rng.choice((1, 1, 2)),
            max_tokens=self.rng.randint(1, 40),
            **fields,
        )
        assert answer.status_code == 200
        self._tell(last_usage(answer.text) if stream else answer.json()["usage"])

    async def _embeds(self, house: House) -> None:
        answer = await house.http.post(
            "/embeddings",
            json={"model": "demo", "input": ["a text", "another"]},
            headers={"authorization": f"Bearer {TENANTS[self.tenant]}"},
        )
        assert answer.status_code == 200
        self._tell(answer.json()["usage"])

    async def _completes(self, house: House) -> None:
        stream = self.rng.random() < 0.5
        body: dict[str, Any] = {
            "model": "demo",
            "prompt": ["some words " * self.rng.choice((1, 200)) for _ in range(self.rng.randint(1, 4))],
            "n": self.rng.choice((1, 2)),
            "max_tokens": self.rng.randint(1, 20),
            "best_of": None if stream else self.rng.choice((None, 3)),
        }
        if stream:
            body |= {"stream": True, "stream_options": {"include_usage": True}}
        answer = await house.http.post(
            "/completions", json=body, headers={"authorization": f"Bearer {TENANTS[self.tenant]}"}
        )
        assert answer.status_code == 200
        self._tell(last_usage(answer.text) if stream else answer.json()["usage"])

    async def _leaves(self, house: House) -> None:
        reader, writer = await house.send("And then?", key=TENANTS[self.tenant], stream=True, max_tokens=2_000)
        for _ in range(self.rng.randint(1, 4)):
            await reader.readuntil(b"data: ")
        writer.close()

    def _tell(self, usage: dict[str, Any]) -> None:
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
        self.told["prefill_tokens"] += usage["prompt_tokens"] - cached
        self.told["cached_tokens"] += cached
        self.told["decode_tokens"] += usage.get("completion_tokens") or 0
        self.told["requests"] += 1


def last_usage(text: str) -> dict[str, Any]:
    usage = [json.loads(event)["usage"] for event in events(text)[:-1] if '"usage":{' in event]
    return dict(usage[-1])


@pytest.mark.parametrize("seed", range(3))
async def test_charged_is_used_per_tenant_and_dimension(valkey: EmbeddedServer, seed: int) -> None:
    async with pair(valkey, every_dimension) as gateways:
        clients = [Client(seed, tenant, gateways) for tenant in TENANTS for _ in range(3)]
        await asyncio.gather(*(client.run(12) for client in clients))
        for each in gateways:
            await each.quiet()
        for each in gateways:
            await each.nothing_left()
        for tenant in TENANTS:
            kept = await records(gateways[0], tenant)
            assert await counters(gateways[0], tenant) == charged(kept)
            engine = charged([record for record in kept if record.source == "engine"])
            told = sum((client.told for client in clients if client.tenant == tenant), Counter[str]())
            for dimension in ("prefill_tokens", "cached_tokens", "decode_tokens", "requests"):
                assert engine[dimension] == told[dimension], dimension
            left = [record for record in kept if record.source == "estimated"]
            assert {record.outcome for record in left} <= {"client_gone"}
            assert all(record.prefill_tokens > 0 and record.label == "client" for record in left)


async def test_metrics_say_it_too(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=every_dimension) as running:
        client = Client(7, "acme", (running,))
        await client.run(20)
        await running.nothing_left()
        sums = charged(await records(running, "acme"))
        assert await running.metric("kvgate_tokens_total") == sums["total_tokens"]
        assert await running.metric("kvgate_kv_read_bytes_total") == sums["kv_read_bytes"]
        assert await running.metric("kvgate_money_total") == pytest.approx(sums["money"] / 1e9)
        assert await running.metric("kvgate_gpu_seconds_total") == pytest.approx(sums["gpu_seconds"] / 1e6)
