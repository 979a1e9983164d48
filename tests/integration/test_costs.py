"""Budgets of money, of GPU time and of KV held over time, through a whole gateway."""

from collections.abc import Mapping
from typing import Any

import pytest

from bench import kept
from budgets.record import Record, decoded
from gateway.embedded import EmbeddedServer
from tests.house import House, gateway, house
from tests.upstream import frame, streams, upstream

ALWAYS = {"every": "month"}
COSTS = [
    {"name": "money", "dimension": "money", "amount": "1000"} | ALWAYS,
    {"name": "gpu", "dimension": "gpu_seconds", "amount": "1000h"} | ALWAYS,
    {"name": "held", "dimension": "kv_byte_seconds", "amount": "1PB"} | ALWAYS,
]
LIST = {"input": 3, "cached": "0.30", "output": 15}
USAGE: Mapping[str, Any] = {
    "prompt_tokens": 1_000,
    "completion_tokens": 100,
    "prompt_tokens_details": {"cached_tokens": 600},
    "completion_tokens_details": {"reasoning_tokens": 80},
}


def costs(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["budgets"] = COSTS
    data["pools"]["any"]["price_per_gpu_hour"] = 2.49


def listed(data: dict[str, Any]) -> None:
    costs(data)
    data["models"]["demo"]["price_per_million_tokens"] = LIST


async def in_use(running: House, bucket: str) -> int:
    """What stands in a quota's buckets, in its dimension's own parts."""
    stored = await kept.in_use(running.gateway.store)
    return sum(amount for name, amount in stored.items() if name.startswith(bucket))


async def records(running: House) -> list[Record]:
    found = await running.gateway.store.command("XRANGE", "kvgate:1:{acme}:usage:acme", "-", "+")
    assert isinstance(found, list)
    return [decoded(fields[1]) for _, fields in found]


async def test_counters_records_and_metrics_agree(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=costs) as running:
        for number in range(3):
            assert (await running.chat(f"call {number}", stream=number % 2 == 0)).status_code == 200
        await running.nothing_left()
        found = await records(running)
        assert len(found) == 3
        for bucket, field, metric, parts in (
            ("money:money", "money_nanos", "kvgate_money_total", 1e9),
            ("gpu:gpu_seconds", "gpu_microseconds", "kvgate_gpu_seconds_total", 1e6),
            ("held:kv_byte_seconds", "kv_byte_seconds", "kvgate_kv_byte_seconds_total", 1),
        ):
            total = sum(getattr(record, field) for record in found)
            assert await in_use(running, bucket) == total > 0
            assert await running.metric(metric) == pytest.approx(total / parts)


async def test_the_price_list_charges_cached_and_reasoning_tokens_once(valkey: EmbeddedServer) -> None:
    script = streams(frame("one"), frame("two", finish="stop"), frame(usage=USAGE), b"data: [DONE]\n\n")
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, listed) as running:
        assert (await running.chat(stream=True)).status_code == 200
        await running.quiet()
        by_hand = 400 * 3_000 + 600 * 300 + 100 * 15_000  # billionths a token
        assert await in_use(running, "money:money") == by_hand
        (record,) = await records(running)
        assert (record.money_nanos, record.cached_tokens, record.decode_tokens) == (by_hand, 600, 100)
        assert record.reasoning_tokens == 80


async def test_spent_money_is_told_in_the_currency(valkey: EmbeddedServer) -> None:
    def poor(data: dict[str, Any]) -> None:
        listed(data)
        data["tiers"]["standard"]["budgets"] = [
            {"name": "cents", "dimension": "money", "amount": "0.01", "every": "month"}
        ]

    script = streams(frame("one"), frame("two", finish="stop"), frame(usage=USAGE), b"data: [DONE]\n\n")
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, poor) as running:
        statuses = [(await running.chat(stream=True)).status_code for _ in range(4)]
        await running.quiet()
        refused = await running.chat(stream=True)
        assert statuses == [200, 200, 200, 200]
        error = refused.json()["error"]
        assert (refused.status_code, error["code"], error["dimension"]) == (429, "insufficient_quota", "money")
        assert (error["limit"], error["used"]) == (0.01, pytest.approx(4 * 0.00288))
        (row,) = (await running.http.get("/usage", headers={"authorization": "Bearer sk-test-acme"})).json()["data"]
        assert (row["limit"], row["remaining"]) == (0.01, 0)


async def test_a_strict_budget_of_money_is_never_exceeded(valkey: EmbeddedServer) -> None:
    def strict(data: dict[str, Any]) -> None:
        listed(data)
        tier = data["tiers"]["standard"]
        tier["budgets"] = [
            {"name": "cap", "dimension": "money", "amount": "0.002", "every": "month", "hardness": "strict"}
        ]
        tier["max_tokens"] = {"limit": 32}

    async with house(valkey.url, change=strict) as running:
        statuses = [(await running.chat(max_tokens=32)).status_code for _ in range(8)]
        await running.nothing_left()
        assert 200 in statuses and 429 in statuses
        spent = sum(record.money_nanos for record in await records(running))
        assert 0 < spent <= 2_000_000


async def test_bytes_from_and_to_the_client_are_those_of_the_bodies(valkey: EmbeddedServer) -> None:
    def network(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["budgets"] = [
            {"name": "network", "dimension": "network_bytes", "amount": "1GB", "every": "month"}
        ]

    async with house(valkey.url, change=network) as running:
        answers = [await running.chat("Hello " * 100), await running.chat("Hello", stream=True)]
        await running.nothing_left()
        bodies = sum(len(answer.request.content) + len(answer.content) for answer in answers)
        assert await in_use(running, "network:network_bytes") == bodies
        assert sum(record.network_bytes for record in await records(running)) == bodies
        assert await running.metric("kvgate_network_bytes_total") == bodies
