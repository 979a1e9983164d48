"""Keys and limits that operators change while gateways run: every gateway sees them, without a restart."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest

from gateway.desk import Desk
from gateway.embedded import EmbeddedServer
from gateway.keys import PREFIX
from gateway.limit_desk import LimitDesk, Place
from gateway.store import Store
from gateway.tenant_book import BOOK, CHANGES
from tests.fault.store_proxy import store_proxy
from tests.house import KEY, House, configured, house

SECRET = b"s" * 32
"""As in tests/house.py."""
PATIENCE_SECONDS = 60.0


def desk(store: Store) -> Desk:
    return Desk(
        lambda: configured({"any": {"one": "http://127.0.0.1:1"}}, limited), store, lambda: SECRET, "ann", "cli"
    )


def limited(data: dict[str, Any]) -> None:
    """A tier whose tenants may call three times."""
    data["tiers"]["small"] = {
        "budgets": [{"name": "calls", "dimension": "requests", "amount": 3, "per": "1000000d"}],
    }


@pytest.fixture
async def pair(valkey: EmbeddedServer) -> AsyncIterator[tuple[House, House]]:
    """Two gateways on one store."""
    async with AsyncExitStack() as ends:
        one, other = [await ends.enter_async_context(house(valkey.url, change=limited)) for _ in range(2)]
        yield one, other


async def answered(running: House, key: str, status: int) -> None:
    """Wait until a key is answered with this status; what the gateway has not heard of yet is asked again."""
    await becomes(lambda: statuses(running, key), status)


async def statuses(running: House, key: str) -> int:
    return (await running.chat(key=key)).status_code


async def becomes(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await ask() != wanted:  # noqa: ASYNC110 - no event tells when a gateway has looked
            await asyncio.sleep(0.05)


async def test_a_key_made_at_run_time_is_accepted_everywhere_and_refused_once_it_is_deleted(
    pair: tuple[House, House],
) -> None:
    at = desk(pair[0].gateway.store)
    await at.create("beta", {"tier": "small"})
    key = await at.create_key("beta", "laptop")
    assert key.startswith(PREFIX)
    for running in pair:
        await answered(running, key, 200)
    assert await pair[0].metric("kvgate_store_tenants") == 1
    await at.delete_key("beta", "laptop")
    for running in pair:
        await answered(running, key, 401)
        assert await statuses(running, KEY) == 200


async def test_disabling_a_tenant_of_the_file_shuts_all_its_keys_out_until_it_is_enabled(
    pair: tuple[House, House],
) -> None:
    at = desk(pair[0].gateway.store)
    key = await at.create_key("acme", "second")
    await answered(pair[1], key, 200)
    await at.switch("acme", False)
    for each in (KEY, key):
        await answered(pair[1], each, 401)
    await at.switch("acme", True)
    for each in (KEY, key):
        await answered(pair[1], each, 200)


async def test_after_a_rotation_both_keys_hold_for_the_overlap_and_the_budget_of_the_name_goes_on(
    pair: tuple[House, House],
) -> None:
    at = desk(pair[0].gateway.store)
    await at.create("beta", {"tier": "standard"})
    old = await at.create_key(
        "beta", "laptop", budgets=({"name": "few", "dimension": "requests", "amount": 2, "per": "1000000d"},)
    )
    await answered(pair[0], old, 200)
    new = await at.rotate("beta", "laptop", overlap_seconds=3600)
    await answered(pair[0], new, 200)
    assert [await statuses(pair[0], each) for each in (old, new)] == [429, 429]
    newest = await at.rotate("beta", "laptop", overlap_seconds=0)
    await answered(pair[0], newest, 429)
    for each in (old, new):
        await answered(pair[0], each, 401)


async def test_an_expired_key_is_refused(pair: tuple[House, House]) -> None:
    at = desk(pair[0].gateway.store)
    key = await at.create_key("acme", "short")
    await answered(pair[1], key, 200)
    await at.expire("acme", "short", 1.0)
    await answered(pair[1], key, 401)
    await at.expire("acme", "short", None)
    await answered(pair[1], key, 200)


async def test_a_boost_lets_more_pass_and_keeps_what_was_used(pair: tuple[House, House]) -> None:
    store = pair[0].gateway.store
    at, place = desk(store), Place("beta", "calls")
    await at.create("beta", {"tier": "small"})
    key = await at.create_key("beta", "laptop")
    await answered(pair[0], key, 200)
    assert [await statuses(pair[0], key) for _ in range(3)] == [200, 200, 429]
    await LimitDesk(at, store).boost(place, "5", 4e9, reason="a launch")
    await answered(pair[0], key, 200)
    await answered(pair[1], key, 200)
    assert [await statuses(running, key) for running in pair] == [429, 429]
    await LimitDesk(at, store).end_boost(place)
    (account,) = await LimitDesk(at, store).accounts("beta")
    assert (account.used, account.remaining) == (5, 0)


async def test_a_counter_is_put_right_with_a_note_of_why(pair: tuple[House, House]) -> None:
    store = pair[0].gateway.store
    at, place = desk(store), Place("beta", "calls")
    await at.create("beta", {"tier": "small"})
    key = await at.create_key("beta", "laptop")
    await answered(pair[0], key, 200)
    assert [await statuses(pair[0], key) for _ in range(3)] == [200, 200, 429]
    await answered(pair[1], key, 429)
    for running in pair:
        await running.quiet()
    _, corrected = await LimitDesk(at, store).set_used(place, "1", "two of them were ours")
    assert (corrected.before, corrected.reserved) == (3, 0)
    assert [await statuses(pair[1], key) for _ in range(3)] == [200, 200, 429]
    entry = (await at.changes("beta"))[0]
    assert entry.detail == {
        "limit": "calls",
        "of": "tenant:beta",
        "used": 1,
        "was": 3,
        "reason": "two of them were ours",
    }


async def test_a_reload_of_the_file_keeps_the_store_s_tenants(pair: tuple[House, House]) -> None:
    running = pair[0]
    at = desk(running.gateway.store)
    await at.create("beta", {"tier": "small"})
    key = await at.create_key("beta", "laptop")
    await answered(running, key, 200)
    await running.gateway.put(running.gateway.snapshot.config)
    assert await statuses(running, key) == 200
    await running.gateway.put(configured({"any": {"one": running.engines["one"].url}}, None))
    assert await statuses(running, key) == 401, "its tier is gone"
    assert await statuses(running, KEY) == 200


async def test_while_the_store_is_away_known_keys_go_on_and_what_was_revoked_is_seen_on_its_return(
    valkey: EmbeddedServer, store: Store
) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, change=limited) as running:
        key = await desk(store).create_key("acme", "second")
        await answered(running, key, 200)
        proxy.away()
        await answered(running, PREFIX + "x" * 43, 503)  # it may have been made meanwhile
        assert await statuses(running, key) == 200
        assert await statuses(running, "sk-unknown-to-all") == 401
        await desk(store).delete_key("acme", "second")
        assert await statuses(running, key) == 200, "it cannot know"
        proxy.back()
        await answered(running, key, 401)


async def test_no_key_stands_anywhere_in_the_store(pair: tuple[House, House]) -> None:
    store = pair[0].gateway.store
    at = desk(store)
    await at.create("beta", {"tier": "small"})
    keys = [await at.create_key("beta", "laptop"), await at.rotate("beta", "laptop", 60)]
    for key in keys:
        await answered(pair[0], key, 200)
    await pair[0].quiet()
    told = json.dumps([entry.detail for entry in await at.changes()]) + json.dumps(await at.tenant("beta"))
    names = await store.command("KEYS", "*")
    assert isinstance(names, list) and {BOOK.encode(), CHANGES.encode()} <= set(names)
    await store.command("CONFIG", "SET", "rdbcompression", "no")
    for name in names:
        dump = await store.command("DUMP", name)
        assert isinstance(dump, bytes)
        for key in keys:
            assert key[len(PREFIX) :].encode() not in dump
    for key in keys:
        assert key[len(PREFIX) :] not in told


async def test_a_store_that_was_emptied_or_replaced_is_read_as_a_whole(pair: tuple[House, House]) -> None:
    running, store = pair[0], pair[0].gateway.store
    key = await desk(store).create_key("acme", "second")
    await answered(running, key, 200)
    await store.command("FLUSHALL")
    await answered(running, key, 401)
    await desk(store).create("beta", {"tier": "small"})
    other = await desk(store).create_key("beta", "laptop")
    await answered(running, other, 200)


async def test_operators_who_change_one_tenant_at_once_lose_nothing(store: Store) -> None:
    await desk(store).create("beta", {"tier": "small"})
    async with asyncio.TaskGroup() as group:
        for number in range(4):
            group.create_task(desk(store).create_key("beta", f"key-{number}"))
    told = await desk(store).tenant("beta")
    assert isinstance(told["keys"], list)
    assert sorted(key["name"] for key in told["keys"]) == [f"key-{number}" for number in range(4)]
    assert len(await desk(store).changes("beta")) == 5


async def test_garbage_in_the_store_does_not_end_the_watch_over_keys(pair: tuple[House, House]) -> None:
    running, store = pair[0], pair[0].gateway.store
    key = await desk(store).create_key("acme", "second")
    await answered(running, key, 200)
    await store.command("XADD", CHANGES, "*", "tenant", b"\xff\xfe")
    await store.command("HSET", BOOK, b"\xff\xfe", b"\x00")
    await desk(store).switch_key("acme", "second", False)
    await answered(running, key, 401)


async def test_the_first_calls_of_a_new_tenant_come_at_once_and_are_held_to_its_limit(
    pair: tuple[House, House],
) -> None:
    """Nothing is made by a first call that the ones beside it could miss."""
    at = desk(pair[0].gateway.store)
    await at.create("beta", {"tier": "small"})
    key = await at.create_key("beta", "laptop")
    for running in pair:
        await becomes(lambda running=running: models_status(running, key), 200)  # type: ignore[misc]
    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(statuses(running, key)) for running in pair for _ in range(8)]
    assert sorted(call.result() for call in calls) == [200] * 3 + [429] * 13


async def models_status(running: House, key: str) -> int:
    """A question that costs nothing."""
    answer = await running.http.get("/models", headers={"authorization": f"Bearer {key}"})
    return answer.status_code
