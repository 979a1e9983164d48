"""A session that is deleted while a record of it waits in a gateway that the store has left: it stays deleted."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest

from gateway import catching_up
from gateway.embedded import EmbeddedServer
from gateway.store import Store
from tests.fault.store_proxy import StoreProxy, store_proxy
from tests.fault.test_session_recalled import ANSWER, ask, changing, find, lose
from tests.house import KEY, House, gateway, until
from tests.integration.test_summaries import asked, made, summarised
from tests.upstream import Peer, Upstream, answers, reply, upstream

SESSION = "kvgate:1:{acme}:s:chat"
LIVE = "kvgate:1:{acme}:sessions"
DELETED = "kvgate:1:{acme}:deleted"


@dataclass
class Pair:
    """`one` loses the store, `two` keeps it."""

    one: House
    two: House
    proxy: StoreProxy

    async def cut(self) -> None:
        await lose(self.one, self.proxy)

    async def mended(self) -> None:
        await find(self.one, self.proxy)
        await until(lambda: not self.one.gateway.sessions_waiting())


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(answers(reply(200, ANSWER))) as running:
        yield running


@asynccontextmanager
async def pair_of(valkey: EmbeddedServer, up: Upstream) -> AsyncIterator[Pair]:
    urls = {"any": {"one": up.url}}
    async with (
        store_proxy(valkey.url) as proxy,
        gateway(urls, proxy.url, changing) as one,
        gateway(urls, valkey.url, changing, flush=False) as two,
    ):
        yield Pair(one, two, proxy)


async def delete(house: House) -> int:
    answer = await house.http.delete("/sessions/chat", headers={"authorization": f"Bearer {KEY}"})
    return answer.status_code


async def is_there(store: Store) -> bool:
    listed = await store.command("ZSCORE", LIVE, "chat", key=LIVE)
    held = await store.command("EXISTS", SESSION, key=SESSION)
    assert (listed is not None) == bool(held)
    return bool(held)


async def test_a_turn_that_waited_does_not_bring_it_back(valkey: EmbeddedServer, store: Store, up: Upstream) -> None:
    async with pair_of(valkey, up) as pair:
        await ask(pair.one, 5)
        await pair.cut()
        await ask(pair.one, 6)
        assert await delete(pair.two) == 200
        await pair.mended()
        assert not await is_there(store)
        assert await pair.one.metric("kvgate_sessions_late_total", result="deleted") == 1
        assert await pair.one.metric("kvgate_sessions_late_total", result="written") == 0
        await ask(pair.one, 7)
        assert await pair.one.metric("kvgate_sessions_total", found="new") == 2
        assert await is_there(store), "it begins anew with what came after"


async def test_nor_does_one_that_began_while_the_store_was_away(
    valkey: EmbeddedServer, store: Store, up: Upstream
) -> None:
    """The store has nothing of it to delete, and the other gateway cannot know of it."""
    async with pair_of(valkey, up) as pair:
        await pair.cut()
        await ask(pair.one, 6)
        assert await delete(pair.two) == 404
        await pair.mended()
        assert not await is_there(store)


async def test_one_that_began_after_the_deletion_is_written(valkey: EmbeddedServer, store: Store, up: Upstream) -> None:
    async with pair_of(valkey, up) as pair:
        await ask(pair.two, 5)
        assert await delete(pair.two) == 200
        await pair.cut()
        await store.command("ZINCRBY", DELETED, -10_000, "chat", key=DELETED)  # let ten seconds pass
        await ask(pair.one, 6)
        await pair.mended()
        assert await is_there(store)


async def test_it_is_not_joined_to_one_that_has_begun_anew(valkey: EmbeddedServer, store: Store, up: Upstream) -> None:
    async with pair_of(valkey, up) as pair:
        await ask(pair.one, 5)
        await pair.cut()
        await ask(pair.one, 6)
        assert await delete(pair.two) == 200
        await ask(pair.two, 2)
        before = await store.command("HGETALL", SESSION, key=SESSION)
        await pair.mended()
        assert await store.command("HGETALL", SESSION, key=SESSION) == before


async def test_nor_do_edits_that_this_process_remembers_bring_it_back(
    valkey: EmbeddedServer, store: Store, up: Upstream
) -> None:
    """Deleted elsewhere while nothing waited; the next turn misses the store and goes on from what is remembered."""
    async with pair_of(valkey, up) as pair:
        await ask(pair.one, 6)
        await pair.cut()
        assert await delete(pair.two) == 200
        await ask(pair.one, 7)
        assert await pair.one.metric("kvgate_sessions_total", found="recalled") == 1
        await pair.mended()
        assert not await is_there(store)


async def test_what_waits_here_is_found_and_deleted(
    valkey: EmbeddedServer, store: Store, up: Upstream, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catching_up, "PAUSE_SECONDS", 3600.0)
    async with pair_of(valkey, up) as pair:
        await pair.cut()
        await ask(pair.one, 6)
        await find(pair.one, pair.proxy)
        assert await delete(pair.one) == 200
        assert not pair.one.gateway.sessions_waiting() and not await is_there(store)
        assert await delete(pair.one) == 404


async def test_a_call_under_way_does_not_bring_it_back(valkey: EmbeddedServer, store: Store) -> None:
    """Read before the deletion, or not read at all for want of the store; ended after it."""
    held = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await held.wait()
        await peer.send(reply(200, ANSWER))

    async with upstream(slow) as up, pair_of(valkey, up) as pair:
        for cut in (False, True):
            held.clear()
            if cut:
                await pair.cut()
            asking = asyncio.create_task(ask(pair.one, 5))
            await up.arrived.wait()
            await delete(pair.two)
            held.set()
            await asking
            await pair.mended()
            assert not await is_there(store)
            up.arrived.clear()


async def test_nor_does_what_a_call_under_way_has_to_write_down_of_it(valkey: EmbeddedServer, store: Store) -> None:
    """A record of its older turns, which is asked for once the call has ended."""
    held = asyncio.Event()

    async def slow(peer: Peer) -> None:
        await held.wait()
        await peer.send(reply(200, ANSWER))

    async with upstream(slow) as up, gateway({"any": {"one": up.url}}, valkey.url, summarised()) as house:
        asking = asyncio.create_task(asked(house, 13))
        await up.arrived.wait()
        assert (await house.http.delete("/sessions/one", headers={"authorization": f"Bearer {KEY}"})).status_code == 404
        held.set()
        await asking
        await made(house)
        assert await house.metric("kvgate_summaries_failed_total", reason="deleted") == 1
        assert len(up.requests) == 1, "and no engine was asked for it"
        assert await store.command("KEYS", "kvgate:1:{acme}:*one*") == []
