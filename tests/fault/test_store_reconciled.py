"""A store that comes and goes in whatever way: once it is back, every call has been charged what it used, once."""

import asyncio
import random
from typing import Any

import pytest

from bench import kept
from budgets.ledger import Grant, Scope, reserve, settle
from budgets.limit import Limit
from budgets.record import decoded
from gateway.embedded import EmbeddedServer
from gateway.store import Store
from tests.fault.store_proxy import StoreProxy, store_proxy
from tests.house import KEY, House, gateway, house, until
from tests.upstream import CHUNKED, DONE, END, Peer, chunk, frame, upstream


async def caught_up(running: House) -> None:
    """Wait until the store is back and has heard of everything."""
    await until(lambda: running.gateway.store.available)
    await running.quiet()
    await until(lambda: running.gateway.settlements_waiting() == 0)


async def recorded(store: Store) -> list[int]:
    """Tokens of every record of the tenant."""
    found = await store.command("XRANGE", "kvgate:1:{acme}:usage:acme", "-", "+")
    assert isinstance(found, list)
    records = [decoded(fields[1]) for _, fields in found]
    return sorted(each.prefill_tokens + each.cached_tokens + each.decode_tokens for each in records)


async def sessions(store: Store) -> list[str]:
    """Sessions of every record of the tenant."""
    found = await store.command("XRANGE", "kvgate:1:{acme}:usage:acme", "-", "+")
    assert isinstance(found, list)
    return [session for _, fields in found if (session := decoded(fields[1]).session)]


async def test_calls_of_an_outage_are_charged_when_it_is_over(valkey: EmbeddedServer, store: Store) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url) as running:
        used = [(await running.chat("before")).json()["usage"]["total_tokens"]]
        await running.quiet()
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        for number in range(5):
            answer = await running.chat(f"call {number}")
            assert (answer.status_code, answer.headers["x-kvgate-budget"]) == (200, "local")
            used.append(answer.json()["usage"]["total_tokens"])
        await running.quiet()
        assert await running.metric("kvgate_settlements_waiting") == 5
        assert await running.metric("kvgate_budget_local_total", tenant="acme") == 5
        proxy.back()
        await caught_up(running)
        assert await running.charged() == sum(used)
        assert await recorded(store) == sorted(used)
        assert len(set(await sessions(store))) == 6, "each has its session, which nobody could read"
        assert await running.metric("kvgate_settlements_late_total", result="written") == 5
        await running.nothing_left()


async def test_a_call_that_was_reserved_before_is_charged_after(valkey: EmbeddedServer) -> None:
    async def waits(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("one")))
        await until(lambda: not running.gateway.store.available)
        usage = frame(usage={"prompt_tokens": 3, "completion_tokens": 2})
        await peer.send(chunk(frame("two", finish="stop")), chunk(usage), chunk(DONE), END)

    async with (
        store_proxy(valkey.url) as proxy,
        upstream(waits) as up,
        gateway({"any": {"one": up.url}}, proxy.url) as running,
    ):
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"one")
        proxy.away()
        await reader.readuntil(b"[DONE]")
        writer.close()
        await running.quiet()
        proxy.back()
        await caught_up(running)
        assert await running.charged() == 5
        await running.nothing_left()


async def test_what_is_refused_without_the_store_gives_back_what_it_may_have_taken(valkey: EmbeddedServer) -> None:
    def closed(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["budgets"][0]["on_store_error"] = "closed"

    async with store_proxy(valkey.url) as proxy, house(proxy.url, change=closed, store_timeout_seconds=1) as running:
        proxy.answering.clear()
        assert (await running.chat()).status_code == 503
        proxy.answering.set()
        await caught_up(running)
        assert await running.leases() == await running.charged() == 0


async def test_a_gateway_that_stops_writes_what_waited(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy:
        async with house(proxy.url) as running:
            proxy.away()
            await until(lambda: not running.gateway.store.available)
            used = (await running.chat()).json()["usage"]["total_tokens"]
            await running.quiet()
            proxy.back()
            await until(lambda: running.gateway.store.available)
        async with gateway({"any": {"one": "http://127.0.0.1:1"}}, valkey.url, flush=False) as after:
            assert await after.charged() == used


async def test_what_waits_is_bounded_and_what_is_lost_is_counted(
    valkey: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.backlog.KEPT", 3)
    async with store_proxy(valkey.url) as proxy, house(proxy.url) as running:
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        used = [(await running.chat(f"call {number}")).json()["usage"]["total_tokens"] for number in range(5)]
        await running.quiet()
        assert await running.metric("kvgate_settlements_late_total", result="lost") == 2
        proxy.back()
        await caught_up(running)
        assert await running.charged() == sum(used[2:])
        assert await running.metric("kvgate_settlements_late_total", result="written") == 3


async def test_what_was_sent_but_not_answered_is_sent_again_at_the_end(valkey: EmbeddedServer, store: Store) -> None:
    async with store_proxy(valkey.url) as proxy:
        async with house(proxy.url, store_timeout_seconds=0.5, flush=False) as running:
            proxy.away()
            await until(lambda: not running.gateway.store.available)
            used = (await running.chat()).json()["usage"]["total_tokens"]
            await running.quiet()
            proxy.back()
            await until(lambda: running.gateway.store.available)
            proxy.answering.clear()  # the backlog writes now or soon, and waits for its answer
            await asyncio.sleep(0.4)
            proxy.answering.set()
            await until(lambda: running.gateway.store.available)
        assert sum(await recorded(store)) == await charged(store) == used


def unlimited(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["budgets"] = []


async def test_records_of_a_tenant_without_limits_wait_too(valkey: EmbeddedServer, store: Store) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, change=unlimited) as running:
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        used = [(await running.chat(f"call {number}")).json()["usage"]["total_tokens"] for number in range(3)]
        await running.quiet()
        assert await running.metric("kvgate_settlements_waiting") == 3
        proxy.back()
        await caught_up(running)
        assert await recorded(store) == sorted(used)
        assert await running.metric("kvgate_settlements_late_total", result="written") == 3


async def test_a_record_whose_answer_was_lost_is_not_written_again(valkey: EmbeddedServer, store: Store) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, change=unlimited) as running:
        proxy.answering.clear()
        asked = {"model": "demo", "prompt": "Of no session.", "max_tokens": 8}  # so nothing is read before
        answer = await running.http.post("/completions", json=asked, headers={"authorization": f"Bearer {KEY}"})
        assert answer.status_code == 200
        while not await recorded(store):  # noqa: ASYNC110
            await asyncio.sleep(0.002)
        proxy.away()
        proxy.answering.set()
        proxy.back()
        await caught_up(running)
        assert len(await recorded(store)) == 1
        assert await running.metric("kvgate_settlements_late_total", result="known") == 1


class Weather:
    """Faults of the store by a seed: replies held back, connections broken, everything away for a while."""

    def __init__(self, proxy: StoreProxy, seed: int) -> None:
        self.proxy = proxy
        self.rng = random.Random(seed)

    async def turn(self) -> None:
        """One fault, or none."""
        match self.rng.randrange(4):
            case 0:
                self.proxy.answering.clear()
            case 1:
                self.proxy.away()
                self.proxy.back()
            case 2:
                self.proxy.away()
        await asyncio.sleep(self.rng.random() * 0.3)
        self.proxy.back()
        self.proxy.answering.set()


async def charged(store: Store) -> int:
    """Tokens in use of the tenant's one limit."""
    return -(-(await kept.in_use(store)).get("tokens:total_tokens", 0) // 1_000_000)


async def expired(store: Store) -> None:
    """As if every lease had run out: the next reservation closes them all."""
    await kept.run_out(store)
    touch = Limit(name="touch", dimension="requests", amount=10, per_seconds=1e9)
    granted = await reserve(store.run, Scope("acme", (touch,)), {})
    assert isinstance(granted, Grant)
    await settle(store.run, granted, {})


async def stormy(running: House, weather: Weather) -> None:
    """Some sixty calls in changing weather."""
    await running.chat("so that the scripts are there")
    for number in range(10):
        turning = asyncio.create_task(weather.turn())
        calls = [running.chat(f"call {number} {n}", stream=n % 2 == 0) for n in range(weather.rng.randint(1, 6))]
        assert {answer.status_code for answer in await asyncio.gather(*calls)} <= {200, 429}
        await turning
    await caught_up(running)


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_store_does_every_call_without_limits_is_recorded_once(
    valkey: EmbeddedServer, store: Store, seed: int
) -> None:
    settings: dict[str, Any] = {"store_timeout_seconds": 0.25, "flush": False, "change": unlimited}
    async with store_proxy(valkey.url) as proxy, house(proxy.url, **settings) as running:
        await stormy(running, Weather(proxy, seed))
        assert sum(await recorded(store)) == await running.metric("kvgate_tokens_total") > 0
        assert len(await recorded(store)) == await running.metric("kvgate_requests_total", outcome="ok")
        assert await running.metric("kvgate_settlements_late_total", result="lost") == 0


@pytest.mark.parametrize("seed", range(8))
async def test_whatever_the_store_does_nothing_is_charged_twice_and_nothing_lost(
    valkey: EmbeddedServer, store: Store, seed: int
) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, store_timeout_seconds=0.25, flush=False) as running:
        await stormy(running, Weather(proxy, seed))
        await expired(store)
        tokens = await running.metric("kvgate_tokens_total")
        assert await running.metric("kvgate_requests_estimated_total") == 0
        assert await charged(store) == sum(await recorded(store)) == tokens > 0
        served = await running.metric("kvgate_requests_total", outcome="ok")
        assert len(await recorded(store)) == served
        assert await running.metric("kvgate_settlements_late_total", result="lost") == 0
