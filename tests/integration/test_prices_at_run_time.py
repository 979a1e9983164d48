"""A budget of money that is made at run time counts something, or what it bounds is refused: never nothing."""

import asyncio
import json
from typing import Any

import pytest

from gateway.asker import Asker
from gateway.desk import Desk
from gateway.embedded import EmbeddedServer
from gateway.errors import ModelUnpriced
from gateway.explain_limits import explanation
from gateway.keys import PREFIX
from gateway.limit_desk import LimitDesk, Place
from gateway.store import Store
from gateway.tenant_changes import ChangeRefused
from tests.house import Change, House, configured, house

SECRET = b"s" * 32
"""As in tests/house.py."""
PRICES = {"input": 1000, "output": 1000}
SPEND = {"name": "spend", "dimension": "money", "amount": "100", "every": "month"}
MISSING = (
    "models.demo: the budget 'spend' bounds its money, but it has no price; add price_per_million_tokens, or "
    "price_per_gpu_hour to pools.any"
)
NOWHERE = {"any": {"one": "http://127.0.0.1:1"}}


def priced(data: dict[str, Any]) -> None:
    data["models"]["demo"]["price_per_million_tokens"] = PRICES


def desk(store: Store, change: Change | None = None) -> Desk:
    return Desk(lambda: configured(NOWHERE, change), store, lambda: SECRET, "ann", "cli")


async def served(running: House, key: str) -> int:
    """The status, once the gateway has heard of the key."""
    async with asyncio.timeout(60):
        while (status := (await running.chat(key=key)).status_code) == 401:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    return status


async def test_it_is_refused_where_a_model_has_no_price(store: Store) -> None:
    at = desk(store)
    for settings in ({"budgets": [SPEND]}, {"session": {"budgets": [SPEND]}}):
        with pytest.raises(ChangeRefused) as refused:
            await at.create("beta", {"tier": "standard"} | settings)
        assert str(refused.value) == MISSING
    await at.create("beta", {"tier": "standard"})
    with pytest.raises(ChangeRefused, match="has no price"):
        await at.alter("beta", {"budgets": [SPEND]})
    with pytest.raises(ChangeRefused, match="has no price"):
        await at.create_key("acme", "second", budgets=(SPEND,))
    assert [entry.action for entry in await at.changes()] == ["tenant created"]
    await desk(store, priced).alter("beta", {"budgets": [SPEND]})


async def test_so_it_is_where_the_budget_is_the_tier_s_or_the_organisation_s(store: Store) -> None:
    """The file may hold them as long as none of its own tenants is bound by them."""

    def shared(data: dict[str, Any]) -> None:
        data["tiers"]["paying"] = {"budgets": [SPEND]}
        data["organisations"] = {"group": {"budgets": [SPEND]}}

    for settings in ({"tier": "paying"}, {"tier": "standard", "organisation": "group"}):
        with pytest.raises(ChangeRefused, match="the budget 'spend' bounds its money"):
            await desk(store, shared).create("beta", settings)


async def test_a_step_of_a_soft_limit_is_checked_as_in_the_file(store: Store) -> None:
    soft = [{"at": "50%", "model": "gpt-9"}]
    with pytest.raises(ChangeRefused, match=r"soft\[0\].model: unknown model 'gpt-9'"):
        await desk(store).create("beta", {"tier": "standard", "soft": soft})


async def test_calls_are_refused_while_the_price_is_gone(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=priced) as running:
        store = running.gateway.store
        at = desk(store, priced)
        await at.create("beta", {"tier": "standard", "budgets": [SPEND]})
        key = await at.create_key("beta", "laptop")
        assert key.startswith(PREFIX)
        assert await served(running, key) == 200
        urls = {"any": {name: engine.url for name, engine in running.engines.items()}}
        await running.gateway.put(configured(urls, None))
        answer = await running.chat(key=key)
        assert (answer.status_code, answer.headers["x-should-retry"]) == (503, "false")
        said = answer.json()["error"]
        assert (said["code"], said["dimension"]) == ("model_unpriced", "money")
        assert "`spend`" in said["message"] and "`demo`" in said["message"]
        assert (await running.chat()).status_code == 200  # nobody counts the others' money
        assert await running.metric("kvgate_budget_unpriced_total", tenant="beta", model="demo", mode="enforce") == 1
        assert await running.metric("kvgate_refused_total", code="model_unpriced") == 1
        (beta,) = [each for each in await desk(store).tenants() if each["name"] == "beta"]
        assert beta["problem"] == MISSING
        body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hello!"}]}).encode()
        with pytest.raises(ModelUnpriced):
            await explanation(configured(urls, None), store, SECRET, Asker(key, "", None, None), body)
        await LimitDesk(desk(store), store).boost(Place("beta", "spend"), "200", 4e9)  # what it has may be changed
        boosts: Any = (await desk(store).tenant("beta"))["boosts"]
        assert [boost["amount"] for boost in boosts] == [(await desk(store).changes())[0].detail["amount"]] == [200]
        await running.gateway.put(configured(urls, priced))
        assert await served(running, key) == 200
        await running.quiet()
        (account,) = await LimitDesk(at, store).accounts("beta")
        assert account.used > 0


async def test_in_shadow_they_are_counted_and_pass(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=priced) as running:
        at = desk(running.gateway.store, priced)
        await at.create("beta", {"tier": "standard", "budgets": [SPEND | {"mode": "shadow"}]})
        key = await at.create_key("beta", "laptop")
        assert await served(running, key) == 200
        urls = {"any": {name: engine.url for name, engine in running.engines.items()}}
        await running.gateway.put(configured(urls, None))
        assert await served(running, key) == 200
        assert await running.metric("kvgate_budget_unpriced_total", tenant="beta", mode="shadow") == 1
