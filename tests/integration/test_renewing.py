"""A call that runs for longer than a lease keeps its slot and what it reserved, for as long as its worker lives."""

from collections.abc import Mapping
from typing import Any

import pytest

from budgets.scope import Scope
from gateway.embedded import EmbeddedServer
from gateway.renewing import Renewing
from tests.fault.store_proxy import store_proxy
from tests.house import Change, House, gateway, until
from tests.upstream import CHUNKED, chunk, frame, stalls_after, upstream

LEASES, SLOTS = Scope("acme", ()).keys[1], "kvgate:1:{acme}:slots:lane:concurrent_calls"
LANE: Mapping[str, Any] = {"name": "lane", "dimension": "concurrent_calls", "amount": 1}
HARD: Mapping[str, Any] = {
    "name": "hard",
    "dimension": "total_tokens",
    "amount": "1m",
    "per": "1d",
    "hardness": "strict",
}
STALLS = stalls_after(CHUNKED, chunk(frame("one")))


def budgets(*limits: Mapping[str, Any]) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"] |= {"budgets": list(limits), "max_tokens": {"limit": 50}}

    return change


async def deadlines(running: House, *keys: str) -> list[float]:
    """When the leases and the slots of the one call run out, in us since 1970."""
    found: list[float] = []
    for key in keys:
        first = await running.gateway.store.command("ZRANGE", key, 0, 0, "WITHSCORES")
        assert isinstance(first, list)
        found.append(float(first[1]))
    return found


def renewing(running: House) -> Renewing:
    assert running.gateway.books is not None
    return Renewing(running.gateway.store, running.gateway.books.outstanding)


@pytest.mark.parametrize("limits", [(LANE,), (LANE, HARD)])
async def test_a_call_that_runs_for_two_rounds_is_renewed(
    valkey: EmbeddedServer, limits: tuple[Mapping[str, Any], ...]
) -> None:
    async with upstream(STALLS) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(*limits)) as running:
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"one")
        rounds, before = renewing(running), await deadlines(running, LEASES, SLOTS)
        reserved = await running.metric("kvgate_budget_reserved")
        await rounds.round()
        assert await deadlines(running, LEASES, SLOTS) == before, "most calls have ended by the next"
        await rounds.round()
        after = await deadlines(running, LEASES, SLOTS)
        assert all(later > earlier for later, earlier in zip(after, before, strict=True))
        assert await running.metric("kvgate_budget_reserved") == reserved, "and takes nothing more"
        assert (await running.chat()).status_code == 429, "the slot is not free"
        writer.close()
        await running.nothing_left()
        await rounds.round()
        await running.nothing_left()


async def test_without_a_limit_or_a_store_nothing_is_asked_and_nothing_fails(valkey: EmbeddedServer) -> None:
    async with (
        store_proxy(valkey.url) as proxy,
        upstream(STALLS) as up,
        gateway({"any": {"one": up.url}}, proxy.url, budgets(LANE)) as running,
    ):
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"one")
        rounds = renewing(running)
        await rounds.round()
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        await rounds.round()
        proxy.back()
        await until(lambda: running.gateway.store.available)
        before = await deadlines(running, LEASES)
        await rounds.round()
        assert await deadlines(running, LEASES) > before
        writer.close()
        await running.nothing_left()
    async with upstream(STALLS) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets()) as running:
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"one")
        rounds = renewing(running)
        for _ in range(2):
            await rounds.round()
        assert await running.leases("acme") == 0
        writer.close()
        await running.nothing_left()
