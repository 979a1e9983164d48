"""A record in the making while something else ends: the gateway, its place in the store, the store, the client."""

import asyncio
import json

from gateway.embedded import EmbeddedServer
from tests.fault.store_proxy import store_proxy
from tests.fault.test_summarizer_misbehaves import GOOD, answering, questions, says
from tests.house import KEY, gateway, until
from tests.integration.test_summaries import asked, made, records, summarised, talk, told
from tests.upstream import Peer, upstream


async def test_a_gateway_that_stops_leaves_the_place_to_another_and_pays_what_was_used(valkey: EmbeddedServer) -> None:
    arrived = asyncio.Event()

    async def first_hangs(peer: Peer) -> None:
        if not arrived.is_set():
            arrived.set()
            await peer.gone.wait()
        await peer.send(says(GOOD))

    async with upstream(answering(first_hangs)) as up:
        urls = {"any": {"one": up.url}}
        async with gateway(urls, valkey.url, summarised()) as stopping:
            await asked(stopping, 13)
            await asyncio.wait_for(arrived.wait(), 20)
        async with gateway(urls, valkey.url, summarised(), flush=False) as going_on:
            assert await going_on.leases() == 0
            labels = [(each.label, each.outcome) for each in await records(going_on)]
            assert labels.count(("summary", "client_gone")) == 1
            await asked(going_on, 14)
            await made(going_on)
            assert await going_on.metric("kvgate_summaries_total", result="made") == 1
            assert len(questions(up)) == 2


async def test_a_session_deleted_while_its_record_is_written_gets_none(valkey: EmbeddedServer) -> None:
    arrived, let = asyncio.Event(), asyncio.Event()

    async def waits(peer: Peer) -> None:
        arrived.set()
        await let.wait()
        await peer.send(says(GOOD))

    async with upstream(answering(waits)) as up, gateway({"any": {"one": up.url}}, valkey.url, summarised()) as house:
        await asked(house, 13)
        await asyncio.wait_for(arrived.wait(), 20)
        await house.http.delete("/sessions/one", headers={"authorization": f"Bearer {KEY}"})
        let.set()
        await made(house)
        assert await house.metric("kvgate_summaries_failed_total", reason="deleted") == 1
        assert await house.gateway.store.command("KEYS", "kvgate:1:{acme}:*one*") == []


async def test_a_client_that_leaves_while_it_waits_does_not_stop_the_record(valkey: EmbeddedServer) -> None:
    arrived, let = asyncio.Event(), asyncio.Event()

    async def waits(peer: Peer) -> None:
        arrived.set()
        await let.wait()
        await peer.send(says(GOOD))

    change = summarised(deadline_seconds=60)
    async with upstream(answering(waits)) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as house:
        body = json.dumps({"model": "demo", "messages": talk(17), "max_tokens": 8}, separators=(",", ":")).encode()
        _, writer = await house.send_raw(body, f"authorization: Bearer {KEY}", "x-session-id: one")
        await asyncio.wait_for(arrived.wait(), 20)
        writer.transport.abort()
        await house.quiet()
        let.set()
        await made(house)
        assert await house.metric("kvgate_summaries_total", result="made") == 1
        assert "summarized" in told(await asked(house, 17)), "who comes next finds it"
        assert len(questions(up)) == 1 and len(up.requests) == 2


async def test_a_store_that_goes_while_a_record_is_written_costs_the_record_and_nothing_else(
    valkey: EmbeddedServer,
) -> None:
    arrived, let = asyncio.Event(), asyncio.Event()

    async def waits(peer: Peer) -> None:
        arrived.set()
        await let.wait()
        await peer.send(says(GOOD))

    async with (
        store_proxy(valkey.url) as proxy,
        upstream(answering(waits)) as up,
        gateway({"any": {"one": up.url}}, proxy.url, summarised()) as house,
    ):
        await asked(house, 13)
        await asyncio.wait_for(arrived.wait(), 20)
        proxy.away()
        await until(lambda: not house.gateway.store.available)
        let.set()
        await made(house)
        assert await house.metric("kvgate_summaries_failed_total", reason="store") == 1
        assert "summarized" not in told(await asked(house, 14)), "without the store nobody knows the session"
        proxy.back()
        await until(lambda: house.gateway.store.available)
        assert (await asked(house, 14)).status_code == 200
        await made(house)
