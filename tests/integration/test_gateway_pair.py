"""Two gateways on one store: a session goes on at the other, and the budget is one."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway.embedded import EmbeddedServer
from tests.house import ANY, GENEROUS, KEY, Change, House, gateway, house

ADMITTED = 20


@asynccontextmanager
async def pair(valkey: EmbeddedServer, change: Change | None = None) -> AsyncIterator[tuple[House, House]]:
    """Two gateways with equal configuration over the same two engines."""
    async with house(valkey.url, change=change) as first:
        urls = {"any": {name: first.engines[name].url for name in ANY["any"]}}
        async with gateway(urls, valkey.url, change, flush=False) as second:
            second.engines = first.engines
            yield first, second


async def said(house: House, messages: list[dict[str, str]], session: str) -> str:
    """One turn on this gateway; the answer joins the messages."""
    answer = await house.http.post(
        "/chat/completions",
        json={"model": "demo", "messages": messages, "max_tokens": 8},
        headers={"authorization": f"Bearer {KEY}", "x-session-id": session},
    )
    assert answer.status_code == 200
    text = str(answer.json()["choices"][0]["message"]["content"])
    messages.append({"role": "assistant", "content": text})
    await house.quiet()
    return text


async def homes(house: House) -> set[str]:
    return {name for name in ANY["any"] if await house.metric("kvgate_attempts_total", replica=name)}


async def test_a_session_begun_on_one_goes_on_on_the_other(valkey: EmbeddedServer) -> None:
    async with pair(valkey) as (first, second):
        for number in range(4):
            messages = [{"role": "user", "content": f"Chat {number} begins here. " * 50}]
            await said(first, messages, f"chat-{number}")
            before = {name: await second.metric("kvgate_attempts_total", replica=name) for name in ANY["any"]}
            hits = await cached_tokens(second)
            messages.append({"role": "user", "content": "And on."})
            await said(second, messages, f"chat-{number}")
            grown = [
                name for name in ANY["any"] if await second.metric("kvgate_attempts_total", replica=name) > before[name]
            ]
            assert len(grown) == 1
            assert await cached_tokens(second) > hits, "at the replica that has the prefix"
        assert await second.metric("kvgate_sessions_total", found="known") == 4
        assert await second.metric("kvgate_sessions_total") == 4
        assert await homes(first) == await homes(second) == set(ANY["any"]), "not all on one replica by chance"


async def cached_tokens(house: House) -> float:
    return await house.metric("kvgate_tokens_total", kind="cached")


def so_many_requests(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["budgets"] = [GENEROUS | {"name": "rate", "dimension": "requests", "amount": ADMITTED}]


async def test_the_budget_is_one(valkey: EmbeddedServer) -> None:
    async with pair(valkey, so_many_requests) as both:
        asked = [both[number % 2].chat(f"call {number}", max_tokens=1) for number in range(3 * ADMITTED)]
        statuses = [answer.status_code for answer in await asyncio.gather(*asked)]
        assert statuses.count(200) == ADMITTED
        assert statuses.count(429) == 2 * ADMITTED
        for each in both:
            await each.quiet()
        for each in both:
            await each.nothing_left()
        assert await both[0].charged(bucket="rate:requests") == ADMITTED
        denied = [await each.metric("kvgate_budget_denied_total", limit="rate") for each in both]
        assert sum(denied) == 2 * ADMITTED and all(denied)


async def test_both_salt_the_cache_alike(valkey: EmbeddedServer) -> None:
    """The same prompt on both finds its prefix, whichever asks."""
    async with pair(valkey) as (first, second):
        messages = [{"role": "user", "content": "A prompt of some length, so that it fills blocks. " * 20}]
        await said(first, list(messages), "one")
        await said(second, list(messages), "one")
        assert await cached_tokens(second) > 0
