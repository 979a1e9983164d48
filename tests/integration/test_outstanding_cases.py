"""Reservations that leaked denied calls elsewhere, for budget that nobody used and nobody could see.

What is reserved and not settled is shown, and comes back however a call ends. (That it flows back with the lease where
a worker died is in test_ledger.py.)
"""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import Change, House, gateway
from tests.upstream import CHUNKED, DONE, answers, chunk, frame, reply, resets_after, stalls_after, streams, upstream

SLOW: Mapping[str, Any] = {"per": "1000000d"}
TOKENS: Mapping[str, Any] = {"name": "tokens", "dimension": "total_tokens", "amount": "1g", **SLOW}
LANES: Mapping[str, Any] = {"name": "lanes", "dimension": "concurrent_calls", "amount": 8}
GPU: Mapping[str, Any] = {"name": "gpu", "dimension": "gpu_seconds", "amount": "500h", "every": "month"}
HARD: Mapping[str, Any] = {"name": "hard", "dimension": "decode_tokens", "amount": "1g", "hardness": "strict", **SLOW}
SAYS = streams(frame("one", finish="stop"), frame(usage={"prompt_tokens": 5, "completion_tokens": 2}), DONE)


def budgets(*limits: Mapping[str, Any], **tier: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"] |= {"budgets": list(limits)} | tier

    return change


async def reserved(running: House, dimension: str, tenant: str = "acme") -> float:
    return await running.metric("kvgate_budget_reserved", tenant=tenant, dimension=dimension)


async def test_what_calls_in_flight_hold_is_shown_by_tenant_and_dimension(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, chunk(frame("one")))
    change = budgets(TOKENS, LANES, GPU, HARD, max_tokens={"limit": 100})
    async with (
        upstream(script) as up,
        gateway({"any": {"one": up.url}}, valkey.url, change) as running,
    ):
        assert await reserved(running, "total_tokens") == 0
        writers = []
        for _ in range(2):
            reader, writer = await running.send(stream=True, max_tokens=50)
            await reader.readuntil(b"one")
            writers.append(writer)
        assert await reserved(running, "concurrent_calls") == 2
        assert await reserved(running, "total_tokens") == await running.charged(), "as the store has it"
        assert await reserved(running, "decode_tokens") == 100, "a strict limit holds the most there can be"
        assert 0 < await reserved(running, "gpu_seconds") < 60, "in units, not in parts"
        assert await reserved(running, "total_tokens", "zeta") == 0
        assert await running.metric("kvgate_budget_reserved", dimension="money") == 0
        for writer in writers:
            writer.close()
        await running.nothing_left()
        assert await running.metric("kvgate_budget_reserved") == 0


async def test_what_a_stream_took_on_its_way_is_shown_too(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, *(chunk(frame("w")) for _ in range(12)), chunk(frame("last")))
    async with (
        upstream(script) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS)) as running,
    ):
        reader, writer = await running.send(stream=True, max_tokens=4)
        await reader.readuntil(b"last")
        while await reserved(running, "total_tokens") < 64:  # noqa: ASYNC110  # the step is on its way
            await asyncio.sleep(0.002)
        assert await reserved(running, "total_tokens") == await running.charged()
        writer.close()
        await running.nothing_left()
        assert await running.metric("kvgate_budget_reserved") == 0


@pytest.mark.parametrize(
    "script",
    [
        SAYS,
        answers(reply(400, b'{"error":{"message":"no"}}')),
        answers(reply(500, b"{}")),
        resets_after(),
        resets_after(CHUNKED, chunk(frame("one"))),
    ],
)
async def test_nothing_stays_reserved_however_a_call_ends(valkey: EmbeddedServer, script: Any) -> None:
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS, LANES)) as running:
        for _ in range(3):
            await running.chat(stream=True)
        await running.nothing_left()
        assert await running.metric("kvgate_budget_reserved") == 0


async def test_a_refused_call_and_one_without_a_budget_hold_nothing(valkey: EmbeddedServer) -> None:
    few = {"name": "few", "dimension": "requests", "amount": 1, **SLOW}

    def change(data: dict[str, Any]) -> None:
        budgets(few)(data)
        data["tenants"]["zeta"]["budgets"] = []

    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        assert [(await running.chat(stream=True)).status_code for _ in range(2)] == [200, 429]
        await running.chat(stream=True, key="sk-test-zeta")
        await running.quiet()
        assert await running.metric("kvgate_budget_reserved") == 0
