"""A store that does not answer in time: calls are served by the stated bound, nobody waits for it."""

from typing import Any

from gateway.embedded import EmbeddedServer
from tests.fault.store_proxy import store_proxy
from tests.house import house, until


def closed(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["budgets"][0]["on_store_error"] = "closed"


async def test_calls_are_served_within_the_local_allowance_and_flagged(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, store_timeout_seconds=1) as running:
        assert "x-kvgate-budget" not in (await running.chat("before")).headers
        await running.quiet()
        before = await running.charged()
        proxy.answering.clear()
        answer = await running.chat("meanwhile", stream=True)
        assert (answer.status_code, answer.headers["x-kvgate-budget"]) == (200, "local")
        assert answer.text.endswith("data: [DONE]\n\n")
        await running.quiet()
        assert await running.metric("kvgate_sessions_total", found="unread") == 1
        assert await running.metric("kvgate_store_timeouts_total") > 0
        assert await running.metric("kvgate_store_unwritten_total") == 1

        proxy.answering.set()
        while "x-kvgate-budget" in (await running.chat("after")).headers:
            pass
        await running.quiet()
        assert await running.charged() > before
        assert await running.leases() <= 1, "a reservation whose proof came too late runs out by itself"


async def test_a_grant_whose_proof_came_too_late_is_given_back(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, store_timeout_seconds=1) as running:
        await running.chat("before")
        await running.quiet()
        before = await running.charged()
        proxy.answering.clear()
        answer = await running.chat("meanwhile")  # the reservation is made, its answer held back
        assert answer.headers["x-kvgate-budget"] == "local"
        proxy.answering.set()
        await running.quiet()
        assert await running.leases() == 0
        used = answer.json()["usage"]["total_tokens"]
        assert await running.charged() == before + used


async def test_a_limit_may_let_nothing_pass_unchecked(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, change=closed, store_timeout_seconds=1) as running:
        proxy.answering.clear()
        answer = await running.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
        assert int(answer.headers["retry-after"]) >= 1
        assert await running.metric("kvgate_attempts_total") == 0
        proxy.answering.set()
        await until(lambda: running.gateway.store.available)
        while (await running.chat()).status_code == 503:
            pass
