"""A store that goes away and comes back: calls go on by the stated bound and are written again afterwards."""

from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.fault.store_proxy import store_proxy
from tests.house import gateway, house, until
from tests.upstream import CHUNKED, DONE, END, Peer, chunk, frame, upstream


def on_error(what: str, amount: str = "1g") -> Any:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["budgets"][0] |= {"on_store_error": what, "amount": amount}

    return change


@pytest.mark.parametrize(("what", "status"), [("open", 200), ("local", 200), ("closed", 503)])
async def test_each_limit_says_what_happens(valkey: EmbeddedServer, what: str, status: int) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, change=on_error(what)) as running:
        assert (await running.chat("before")).status_code == 200
        await running.quiet()
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        assert [(await running.chat(f"call {number}")).status_code for number in range(3)] == [status] * 3
        assert await running.metric("kvgate_store_available") == 0
        ready = await running.http.get(f"http://127.0.0.1:{running.gateway.port}/readyz")
        assert ready.status_code == 200, "a store that is away is not an outage"
        proxy.back()
        await until(lambda: running.gateway.store.available)
        answer = await running.chat("after")
        assert answer.status_code == 200 and "x-kvgate-budget" not in answer.headers
        await running.nothing_left()
        assert await running.charged_as_counted() > 0, "also what was let through meanwhile"
        away = 3 if status == 200 else 0
        assert await running.metric("kvgate_budget_local_total") == away
        assert await running.metric("kvgate_requests_total", outcome="ok") == (5 if status == 200 else 2)


async def test_the_local_allowance_has_an_end(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, change=on_error("local", "1000")) as running:
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        answers = [await running.chat(f"call {number}", max_tokens=50) for number in range(5)]
        statuses = [answer.status_code for answer in answers]
        assert statuses[0] == 200 and statuses[-1] == 429
        assert statuses == sorted(statuses)
        told = answers[-1].headers  # of a limit that takes 32 years to flow back, but for ten seconds the store is away
        assert (told["x-kvgate-budget"], told["retry-after"], told["x-should-retry"]) == ("local", "10", "true")


async def test_a_stream_that_began_before_is_not_disturbed(valkey: EmbeddedServer) -> None:
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
        assert b"[DONE]" in await reader.readuntil(b"0\r\n\r\n")
        writer.close()
        await running.quiet()
        assert await running.metric("kvgate_store_unwritten_total") == 1
        assert await running.metric("kvgate_tokens_total", kind="decode") == 2
