"""More calls than the engines may have: they wait their turn, or are told at once when to come back."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import Change, House, gateway, until
from tests.upstream import Peer, Upstream, reply, upstream

ANSWER = b'{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'


def narrow(**routing: object) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["pools"]["any"]["max_concurrent"] = 1
        data["routing"] |= routing

    return change


@pytest.fixture
def go_on() -> asyncio.Event:
    return asyncio.Event()


@pytest.fixture
async def up(go_on: asyncio.Event) -> AsyncIterator[Upstream]:
    async def waits(peer: Peer) -> None:
        await go_on.wait()
        await peer.send(reply(200, ANSWER))

    async with upstream(waits) as running:
        yield running


async def waiting(house: House, calls: int) -> None:
    """Until so many calls wait for a replica."""
    await until(lambda: house.gateway.snapshot.pools["any"].pool.waiting == calls)


async def test_calls_wait_and_are_served_in_turn(valkey: EmbeddedServer, up: Upstream, go_on: asyncio.Event) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, narrow()) as house:
        calls = [asyncio.create_task(house.chat(f"call {number}")) for number in range(5)]
        await waiting(house, 4)
        assert await house.metric("kvgate_waiting") == 4
        assert await house.metric("kvgate_in_flight") == 1
        go_on.set()
        assert [(await call).status_code for call in calls] == [200] * 5
        await house.nothing_left()
        assert await house.charged() == 5 * 5


async def test_a_full_queue_sheds_at_once(valkey: EmbeddedServer, up: Upstream, go_on: asyncio.Event) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, narrow(max_waiting=1)) as house:
        first = asyncio.create_task(house.chat("first"))
        await up.arrived.wait()
        second = asyncio.create_task(house.chat("second"))
        await waiting(house, 1)
        shed = await house.chat("third")
        assert (shed.status_code, shed.json()["error"]["code"]) == (429, "engines_saturated")
        assert int(shed.headers["retry-after"]) >= 1
        go_on.set()
        assert [(await first).status_code, (await second).status_code] == [200, 200]
        await house.nothing_left()
        assert await house.charged() == 2 * 5


async def test_patience_has_an_end(valkey: EmbeddedServer, up: Upstream, go_on: asyncio.Event) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, narrow(queue_timeout="50ms")) as house:
        first = asyncio.create_task(house.chat("first"))
        await up.arrived.wait()
        shed = await house.chat("second")
        assert (shed.status_code, shed.json()["error"]["code"]) == (429, "engines_saturated")
        assert "retry-after" in shed.headers
        assert await house.metric("kvgate_timeouts_total", pool="any", wait="queue") == 1
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 0
        go_on.set()
        assert (await first).status_code == 200
        await house.nothing_left()


async def test_a_pool_in_use_beside_one_that_is_away_is_capacity_that_is_contended(
    valkey: EmbeddedServer, up: Upstream, go_on: asyncio.Event
) -> None:
    def change(data: dict[str, Any]) -> None:
        for name in ("decode", "prefill"):
            data["pools"][name]["max_concurrent"] = 1
        data["routing"] |= {"max_waiting": 0}

    pools = {"decode": {"one": up.url}, "prefill": {"two": "http://127.0.0.1:1"}}
    async with gateway(pools, valkey.url, change) as house:
        house.gateway.snapshot.pools["prefill"].pool.set_health("two", False)
        first = asyncio.create_task(house.chat("first", max_tokens=800))
        await up.arrived.wait()
        shed = await house.chat("second", max_tokens=800)
        assert (shed.status_code, shed.json()["error"]["code"]) == (429, "engines_saturated")
        go_on.set()
        assert (await first).status_code == 200
        await house.nothing_left()
        assert await house.charged() == 5
