"""Lengths of replies as all gateways have seen them: added up in the store, known after a restart, faded in time."""

from functools import reduce
from typing import Any

import pytest

from budgets.estimate import Quantile
from gateway import replies as sharing
from gateway.embedded import EmbeddedServer
from gateway.replies import FULL_UNITS, Key, Replies
from gateway.store import Store
from tests.fault.store_proxy import store_proxy
from tests.house import gateway, until
from tests.integration.test_store import connected
from tests.upstream import DONE, frame, streams, upstream

KEY: Key = ("acme", "demo")


def learned(*tokens: int) -> Replies:
    made = Replies()
    for each in tokens:
        made.learn(KEY, each)
    return made


async def units(store: Store) -> dict[bytes, int]:
    found = await store.command("HGETALL", "kvgate:1:{acme}:replies:acme/demo")
    assert isinstance(found, list)
    return {at: int(count) for at, count in zip(found[::2], found[1::2], strict=True)}


async def test_what_two_gateways_have_seen_adds_up(store: Store) -> None:
    one, other = learned(*[100] * 60), learned(*[1_000] * 40)
    await one.exchange(store)
    await other.exchange(store)
    together = reduce(Quantile.observe, [100] * 60 + [1_000] * 40, Quantile())
    assert other.quantile(KEY).value == together.value
    assert one.quantile(KEY).value != together.value, "nothing was new to it"
    one.learn(KEY, 100)
    await one.exchange(store)
    assert one.quantile(KEY).value == together.value
    assert sum((await units(store)).values()) == 101 * 64


async def test_a_gateway_that_starts_knows_what_others_knew(store: Store) -> None:
    await learned(*[300] * 20).exchange(store)
    fresh = Replies()
    assert fresh.quantile(KEY).estimate(512) == 512
    await fresh.exchange(store)
    assert 300 <= fresh.quantile(KEY).estimate(512) <= 360
    assert sum((await units(store)).values()) == 20 * 64, "asking adds nothing"
    assert await store.command("TTL", "kvgate:1:{acme}:replies:acme/demo") in range(29 * 86_400, 30 * 86_400 + 1)


async def test_what_is_long_past_fades_and_the_counts_stay_small(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "SAMPLED", 1.0)
    for tokens, times in ((100_000, 2_000), (10, 3_000)):
        for _ in range(times // 100):
            told = learned(*[tokens] * 100)
            await told.exchange(store)
    assert told.quantile(KEY).estimate(0) <= 12
    assert sum((await units(store)).values()) < FULL_UNITS


async def test_news_while_the_answer_is_under_way_are_kept(store: Store) -> None:
    told = learned(100)

    class Asking:
        async def ask(self, *asked: Any) -> object:
            answer = store.ask(*asked)
            told.learn(KEY, 100)
            return await answer

    await told.exchange(Asking())  # type: ignore[arg-type]
    assert told.quantile(KEY).total == 2
    await told.exchange(store)
    assert sum((await units(store)).values()) == 2 * 64


async def test_what_a_store_that_is_away_was_not_told_it_hears_later(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy, connected(proxy.url) as store:
        await store.command("FLUSHALL")
        told = learned(100, 100)
        proxy.away()
        await told.exchange(store)
        told.learn(KEY, 100)
        proxy.back()
        await until(lambda: store.available)
        await told.exchange(store)
        assert sum((await units(store)).values()) == 3 * 64


async def test_members_of_an_organisation_share_its_tag_and_nothing_else(store: Store) -> None:
    for tenant in ("acme", "zeta"):
        told = Replies()
        told.learn((tenant, "m"), 5, "group")
        await told.exchange(store)
    keys = await store.command("KEYS", "*")
    assert isinstance(keys, list)
    assert sorted(keys) == [b"kvgate:1:{group}:replies:acme/m", b"kvgate:1:{group}:replies:zeta/m"]


async def test_a_gateway_that_stops_leaves_what_it_has_seen(valkey: EmbeddedServer) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 40}
    says = streams(frame("w", finish="stop"), frame(usage=usage), DONE)
    async with upstream(says) as up:
        urls = {"any": {"one": up.url}}
        async with gateway(urls, valkey.url) as running:
            for _ in range(5):
                await running.chat(stream=True, max_tokens=5_000)
        async with gateway(urls, valkey.url, flush=False) as running:
            assert sum((await units(running.gateway.store)).values()) == 5 * 64
