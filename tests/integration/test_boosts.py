"""More of any limit for a while: of an organisation, a tenant, a key, one session or each of them, and back again."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from typing import Any

import pytest

from gateway.clock import wall
from gateway.desk import Desk
from gateway.embedded import EmbeddedServer
from gateway.keys import PREFIX
from gateway.limit_desk import LimitDesk, Place
from gateway.store import Store
from gateway.tenant_book import BOOK
from gateway.tenant_changes import ChangeRefused
from tests.house import KEY, OTHER_KEY, House, configured, house

FOREVER = 4e9
SPARSE = {"dimension": "requests", "amount": 2, "per": "1000000d"}


def levels(data: dict[str, Any]) -> None:
    """Two calls for an organisation; two for each session of a third tenant, which is in none."""
    data["organisations"] = {"group": {"budgets": [{"name": "everybody"} | SPARSE]}}
    for name in ("acme", "zeta"):
        data["tenants"][name]["organisation"] = "group"
    data["tiers"]["chatty"] = {"session": {"budgets": [{"name": "turns"} | SPARSE]}}


@pytest.fixture
async def pair(valkey: EmbeddedServer) -> AsyncIterator[tuple[House, House]]:
    """Two gateways on one store."""
    async with AsyncExitStack() as ends:
        one, other = [await ends.enter_async_context(house(valkey.url, change=levels)) for _ in range(2)]
        yield one, other


def desks(store: Store) -> tuple[Desk, LimitDesk]:
    desk = Desk(
        lambda: configured({"any": {"one": "http://127.0.0.1:1"}}, levels), store, lambda: b"s" * 32, "ann", "cli"
    )
    return desk, LimitDesk(desk, store)


async def becomes(ask: Callable[[], Awaitable[object]], wanted: object) -> None:
    async with asyncio.timeout(60):
        while await ask() != wanted:  # noqa: ASYNC110 - no event tells when a gateway has looked
            await asyncio.sleep(0.05)


async def status(running: House, key: str = KEY, session: str | None = None) -> int:
    return (await running.chat(key=key, **({} if session is None else {"session_id": session}))).status_code


async def test_of_an_organisation_for_all_its_tenants_of_the_file_and_of_the_store(pair: tuple[House, House]) -> None:
    one, other = pair
    desk, limits = desks(one.gateway.store)
    await desk.create("beta", {"tier": "standard", "organisation": "group"})
    key = await desk.create_key("beta", "laptop")
    await becomes(lambda: status(other, key), 200)
    assert [await status(one), await status(other, OTHER_KEY)] == [200, 429]
    await becomes(lambda: status(one, key), 429)

    place = Place("acme", "everybody", organisation=True)
    await limits.boost(place, "5", FOREVER, reason="a launch")
    await becomes(lambda: status(other), 200)
    await becomes(lambda: status(one, OTHER_KEY), 200)
    await becomes(lambda: status(other, key), 200)
    assert [await status(one), await status(one, OTHER_KEY), await status(other, key)] == [429] * 3
    (everybody, _) = await limits.accounts("zeta")
    assert (everybody.terms.limit.amount, everybody.used) == (5, 5)
    boosts: Any = (await desk.tenant("beta"))["boosts"]
    assert [(boost["limit"], boost["organisation"]) for boost in boosts] == [("everybody", True)]

    (entry,) = await desk.changes("organisation/group")
    assert (entry.who, entry.action, entry.detail["limit"], entry.detail["reason"]) == (
        *("ann", "limit boosted", "everybody", "a launch"),
    )
    assert [each["name"] for each in await desk.tenants()] == ["acme", "beta", "zeta"]
    assert await one.metric("kvgate_store_tenants") == 1
    await limits.end_boost(place)
    (everybody, _) = await limits.accounts("zeta")
    assert (everybody.terms.limit.amount, everybody.used) == (2, 5)
    assert await one.gateway.store.command("HEXISTS", BOOK, "organisation/group") == 0
    with pytest.raises(ChangeRefused, match="no boost of 'everybody' is in force"):
        await limits.end_boost(place)


async def test_it_ends_by_itself(pair: tuple[House, House]) -> None:
    running, _ = pair
    _, limits = desks(running.gateway.store)
    assert [await status(running) for _ in range(3)] == [200, 200, 429]
    until = wall() + 3
    await limits.boost(Place("acme", "everybody", organisation=True), "1000", until)
    await becomes(lambda: status(running), 200)
    await becomes(lambda: status(running), 429)
    assert wall() >= until


async def test_of_one_session_and_of_each(pair: tuple[House, House]) -> None:
    one, other = pair
    desk, limits = desks(one.gateway.store)
    await desk.create("beta", {"tier": "chatty"})
    key = await desk.create_key("beta", "laptop")
    await becomes(lambda: status(one, key, "first"), 200)
    await becomes(lambda: status(other, key, "second"), 200)
    assert [await status(one, key, "first"), await status(other, key, "first")] == [200, 429]
    assert [await status(other, key, "second"), await status(one, key, "second")] == [200, 429]

    first = Place("beta", "turns", session="first")
    await limits.boost(first, "3", FOREVER)
    await becomes(lambda: status(other, key, "first"), 200)
    assert [await status(one, key, "first"), await status(one, key, "second")] == [429, 429]
    await limits.boost(Place("beta", "turns", session="*"), "4", FOREVER)
    await becomes(lambda: status(one, key, "second"), 200)
    assert [await status(one, key, "second"), await status(one, key, "second")] == [200, 429]
    (turns,) = await limits.accounts("beta", session="first")
    assert (turns.terms.owner.label, turns.terms.limit.amount, turns.used) == ("session:first", 3, 3)  # its own holds
    await limits.end_boost(first)
    await becomes(lambda: status(one, key, "first"), 200)

    await limits.set_used(first, "0", "begun again")
    (turns,) = await limits.accounts("beta", session="first")
    assert (turns.terms.limit.amount, turns.used) == (4, 0)
    with pytest.raises(ChangeRefused, match="each session has a counter of its own"):
        await limits.set_used(Place("beta", "turns", session="*"), "0", "all of them")


async def test_of_a_key_while_its_tenant_has_others(pair: tuple[House, House]) -> None:
    running, _ = pair
    desk, limits = desks(running.gateway.store)
    await desk.create("beta", {"tier": "standard"})
    few = ({"name": "few"} | SPARSE,)
    keys = [await desk.create_key("beta", name, budgets=few) for name in ("one", "two")]
    for key in keys:
        await becomes(partial(status, running, key), 200)
        assert [await status(running, key), await status(running, key)] == [200, 429]
    await limits.boost(Place("beta", "few", "one"), "3", FOREVER)
    await becomes(lambda: status(running, keys[0]), 200)
    assert [await status(running, key) for key in keys] == [429, 429]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ({"key": "main", "organisation": True}, "choose one"),
        ({"session": "s", "organisation": True}, "choose one"),
        ({"session": "not an id"}, "expected an id"),
        ({"session": f"{PREFIX}{'x' * 43}"}, "expected an id .* no key"),
        ({"organisation": True}, "there is no limit 'turns' of the organisation; known: everybody"),
        ({"session": "s"}, "there is no limit 'turns' of the session; known: none"),
    ],
)
async def test_a_place_that_is_none_is_refused(store: Store, place: dict[str, Any], said: str) -> None:
    _, limits = desks(store)
    with pytest.raises(ChangeRefused, match=said):
        await limits.boost(Place("acme", "turns", **place), "3", FOREVER)


async def test_a_tenant_in_no_organisation_has_none_to_boost(store: Store) -> None:
    desk, limits = desks(store)
    await desk.create("beta", {"tier": "chatty"})
    with pytest.raises(ChangeRefused, match="'beta' is in no organisation"):
        await limits.end_boost(Place("beta", "everybody", organisation=True))
    assert [entry.action for entry in await desk.changes()] == ["tenant created"]
