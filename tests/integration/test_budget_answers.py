"""What a client is told when a budget is spent: who limited, what, how much, and when it is worth trying again."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import Change, house

BIG: Mapping[str, Any] = {"name": "big", "dimension": "total_tokens", "amount": "1g", "per": "1000000d"}


def budgets(*limits: Mapping[str, Any], where: str = "tier") -> Change:
    def change(data: dict[str, Any]) -> None:
        if where == "tier":
            data["tiers"]["standard"]["budgets"] = list(limits)
        elif where == "session":
            data["tiers"]["standard"]["session"] = {"budgets": list(limits)}
        elif where == "key":
            data["tenants"]["acme"]["keys"][0]["budgets"] = list(limits)
        else:
            data["organisations"] = {"group": {"budgets": list(limits)}}
            for name in ("acme", "zeta"):
                data["tenants"][name]["organisation"] = "group"

    return change


@pytest.mark.parametrize("status", [429, 402, 403, 422])
async def test_a_spent_quota_is_not_worth_another_try(valkey: EmbeddedServer, status: int) -> None:
    monthly = {"name": "monthly", "dimension": "requests", "amount": 1, "every": "month", "status": status}
    async with house(valkey.url, change=budgets(monthly, BIG)) as running:
        assert (await running.chat()).status_code == 200
        answer = await running.chat()
        assert answer.status_code == status
        assert answer.headers["x-should-retry"] == "false"
        error = answer.json()["error"]
        assert error["code"] == error["type"] == "insufficient_quota"
        assert (error["scope"], error["dimension"]) == ("tenant:acme", "requests")
        assert (error["limit"], error["used"], error["requested"]) == (1, 1, 1)
        resets_at = datetime.fromisoformat(error["resets_at"])
        left = (resets_at - datetime.now(UTC)).total_seconds()
        assert (resets_at.day, resets_at.hour) == (1, 0)
        assert ("retry-after" in answer.headers) == (left <= 120)
        assert "retry-after-ms" not in answer.headers


@pytest.mark.parametrize(
    ("where", "scope", "other"), [("key", "key:main", 200), ("organisation", "organisation:group", 429)]
)
async def test_it_says_whose_limit_it_was(valkey: EmbeddedServer, where: str, scope: str, other: int) -> None:
    rate = {"name": "few", "dimension": "requests", "amount": 1, "per": "1000000d"}
    async with house(valkey.url, change=budgets(rate, where=where)) as running:
        assert (await running.chat()).status_code == 200
        refused = await running.chat()
        assert refused.status_code == 429
        assert refused.headers["x-should-retry"] == "false", "some SDKs would sleep for days"
        assert refused.json()["error"]["scope"] == scope
        assert (await running.chat(key="sk-test-zeta")).status_code == other


async def test_a_rate_that_comes_back_soon_is_worth_another_try(valkey: EmbeddedServer) -> None:
    rate = {"name": "few", "dimension": "requests", "amount": 2, "per": "100s"}
    async with house(valkey.url, change=budgets(rate, BIG)) as running:
        for _ in range(2):
            assert (await running.chat()).status_code == 200
        refused = await running.chat()
        assert (refused.status_code, refused.headers["x-should-retry"]) == (429, "true")
        assert refused.json()["error"]["type"] == "requests"
        assert 0 < int(refused.headers["retry-after-ms"]) <= 50_000
        assert int(refused.headers["retry-after"]) == -(-int(refused.headers["retry-after-ms"]) // 1000)
        assert refused.headers["x-ratelimit-limit-requests"] == "2"
        assert refused.headers["x-ratelimit-remaining-requests"] == "0"
        assert "ratelimit" not in refused.headers


async def test_the_ietf_s_headers_are_there_when_wanted(valkey: EmbeddedServer) -> None:
    few = {"name": "few", "dimension": "requests", "amount": 1, "every": "hour"}
    lanes = {"name": "lanes", "dimension": "concurrent_calls", "amount": 4}

    def change(data: dict[str, Any]) -> None:
        budgets(few, BIG, lanes, {"dimension": "requests", "amount": 9, "per": "1m", "mode": "shadow"})(data)
        data["tiers"]["standard"]["ietf_headers"] = True

    async with house(valkey.url, change=change) as running:
        for status in (200, 429):
            answer = await running.chat()
            assert answer.status_code == status
            assert answer.headers["ratelimit-policy"] == (
                '"few";q=1;w=3600, "big";q=1000000000;w=86400000000;qu="kvgate-total-tokens", '
                '"lanes";q=4;qu="concurrent-requests"'
            )
            few_left, big_left, lanes_left = answer.headers["ratelimit"].split(", ")
            assert few_left.startswith('"few";r=0;t=')
            assert big_left.startswith('"big";r=9999')
            assert lanes_left == ('"lanes";r=3;t=0' if status == 200 else '"lanes";r=4;t=0')
            await running.quiet()


async def test_a_session_has_a_budget_of_its_own(valkey: EmbeddedServer) -> None:
    rate = {"name": "turns", "dimension": "requests", "amount": 1, "per": "1000000d"}
    async with house(valkey.url, change=budgets(rate, where="session")) as running:
        statuses = [(await running.chat(session_id=id)).status_code for id in ("one", "one", "two", "two")]
        assert statuses == [200, 429, 200, 429]
        await running.nothing_left()


async def test_a_limit_of_one_model_bounds_its_aliases_too(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        budgets({"dimension": "requests", "amount": 2, "every": "day", "model": "gpt-4o-mini"})(data)
        data["models"]["other"] = {"geometry": "llama-3.1-8b", "engine_name": "demo"}
        data["pools"]["any"]["models"].append("other")

    async with house(valkey.url, change=change) as running:
        names = ("demo", "gpt-4o-mini", "demo", "other", "gpt-4o-mini")
        assert [(await running.chat(model=name)).status_code for name in names] == [200, 200, 429, 200, 429]


async def test_a_strict_limit_says_that_a_call_will_never_pass(valkey: EmbeddedServer) -> None:
    strict = {"name": "tight", "dimension": "total_tokens", "amount": 500, "every": "day", "hardness": "strict"}

    def change(data: dict[str, Any]) -> None:
        budgets(strict)(data)
        data["tiers"]["standard"]["max_tokens"] = {"default": 16}

    async with house(valkey.url, change=change) as running:
        refused = await running.chat(max_tokens=600)
        assert (refused.status_code, refused.headers["x-should-retry"]) == (429, "false")
        assert refused.json()["error"]["code"] == "rate_limit_exceeded"
        assert (await running.chat(max_tokens=8)).status_code == 200


async def test_an_organisations_sessions_and_budgets_go_through_one_script(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=budgets(BIG, where="organisation")) as running:
        first = await running.chat(session_id="shared")
        other = await running.chat(session_id="shared", key="sk-test-zeta")
        assert first.status_code == other.status_code == 200
        await running.quiet()
        keys = await running.gateway.store.command("KEYS", "*")
        assert isinstance(keys, list)
        assert all(b"{group}" in key for key in keys)
        assert sum(key.endswith(b":s:shared") for key in keys) == 2, "an id is always one tenant's"
