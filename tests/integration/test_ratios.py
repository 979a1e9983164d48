"""Tokens per byte as all gateways have seen them: added up in the store, known after a restart, faded in time."""

import json
from typing import Any

import pytest

from gateway.asker import Asker
from gateway.embedded import EmbeddedServer
from gateway.explain_limits import explanation
from gateway.ratios import UNLEARNED, Ratios
from gateway.store import Store
from tests.fault.store_proxy import store_proxy
from tests.house import KEY, OTHER_KEY, configured, gateway, house, until
from tests.integration.test_store import connected
from tests.upstream import DONE, frame, streams, upstream

SUMS = "kvgate:1:{_models}:ratios:demo"


def learned(*prompts: tuple[int, int]) -> Ratios:
    """Of prompts by bytes and tokens."""
    made = Ratios()
    for size, tokens in prompts:
        made.learn("demo", "bytes", size, tokens)
    return made


async def sums(store: Store) -> dict[str, int]:
    found = await store.command("HGETALL", SUMS)
    assert isinstance(found, list)
    return {name.decode(): int(value) for name, value in zip(found[::2], found[1::2], strict=True)}


def share(ratios: Ratios) -> float:
    return ratios.of("demo", "bytes").tokens_per_byte


async def test_what_two_gateways_have_seen_adds_up(store: Store) -> None:
    one, other = learned((40_000, 10_000)), learned((10_000, 10_000))
    await one.exchange(store)
    await other.exchange(store)
    assert share(other) == pytest.approx(21_000 / 53_000)  # with what every gateway begins with
    one.learn("demo", "counted", 100, 150)
    await one.exchange(store)
    assert share(one) == share(other)
    assert one.of("demo", "counted").tokens_per_byte == pytest.approx(250 / 200)
    assert await sums(store) == {
        "bytes:tokens": 20_000,
        "bytes:against": 50_000,
        "counted:tokens": 150,
        "counted:against": 100,
    }


async def test_a_gateway_that_starts_knows_what_others_knew(store: Store) -> None:
    await learned((500_000, 100_000)).exchange(store)
    before, fresh = await sums(store), Ratios()
    assert share(fresh) == UNLEARNED["bytes"].tokens_per_byte
    await fresh.exchange(store)
    assert share(fresh) == pytest.approx(0.2, rel=0.02)
    assert await sums(store) == before, "asking adds nothing"
    assert await store.command("TTL", SUMS) in range(29 * 86_400, 30 * 86_400 + 1)


async def test_what_is_long_past_fades_and_the_sums_stay_small(store: Store) -> None:
    for per_byte, times in ((1.0, 40), (0.25, 100)):
        for _ in range(times):
            told = learned((50_000, int(50_000 * per_byte)))
            await told.exchange(store)
    assert share(told) == pytest.approx(0.25, rel=0.15)
    assert (await sums(store))["bytes:against"] <= UNLEARNED["bytes"].window_bytes


async def test_news_while_the_answer_is_under_way_are_kept(store: Store) -> None:
    told = learned((1_000, 500))

    class Asking:
        async def ask(self, *asked: Any) -> object:
            answer = store.ask(*asked)
            told.learn("demo", "bytes", 1_000, 500)
            return await answer

    await told.exchange(Asking())  # type: ignore[arg-type]
    assert share(told) == pytest.approx(2_000 / 5_000)
    await told.exchange(store)
    assert (await sums(store))["bytes:tokens"] == 1_000


async def test_what_a_store_that_is_away_was_not_told_it_hears_later(valkey: EmbeddedServer) -> None:
    async with store_proxy(valkey.url) as proxy, connected(proxy.url) as store:
        await store.command("FLUSHALL")
        told = learned((1_000, 500), (1_000, 500))
        proxy.away()
        await told.exchange(store)
        told.learn("demo", "bytes", 1_000, 500)
        proxy.back()
        await until(lambda: store.available)
        await told.exchange(store)
        assert (await sums(store))["bytes:tokens"] == 1_500


async def test_explain_estimates_as_the_gateways_do(valkey: EmbeddedServer) -> None:
    content = "x" * 4_000
    usage = {"prompt_tokens": 1_000, "completion_tokens": 4}
    async with upstream(streams(frame("w", finish="stop"), frame(usage=usage), DONE)) as up:
        urls = {"any": {"one": up.url}}
        async with gateway(urls, valkey.url) as running:
            for _ in range(100):
                await running.chat(content, stream=True)
            await running.quiet()
        async with gateway(urls, valkey.url, flush=False) as running:
            body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": content}]}).encode()
            store, asker = running.gateway.store, Asker(KEY, "", None, None)
            found = await explanation(configured(urls, None), store, b"s" * 32, asker, body)
            (told,) = [line for line in found.head if line.startswith("expected:")]
            assert int(told.split()[1]) == pytest.approx(1_000, rel=0.02)


@pytest.mark.parametrize("path", ["/chat/completions", "/completions"])
async def test_prompts_that_an_engine_was_told_to_cut_lift_no_limit_for_others(
    valkey: EmbeddedServer, path: str
) -> None:
    """What vLLM counts for `truncate_prompt_tokens` tells nothing of the tokens of a model that all tenants share."""

    def short(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["context"] = {"limit_tokens": 1_000}

    text = "word " * 800
    said = {"prompt": text} if path == "/completions" else {"messages": [{"role": "user", "content": text}]}
    async with house(valkey.url, {"any": ("one",)}, short) as running:
        for _ in range(12):
            answer = await running.http.post(
                path,
                json={"model": "demo", "max_tokens": 1, "truncate_prompt_tokens": 1} | said,
                headers={"authorization": f"Bearer {OTHER_KEY}"},
            )
            assert answer.json()["usage"]["prompt_tokens"] == 1
        await running.quiet()
        assert (await running.chat("word " * 1_500)).json()["error"]["code"] == "context_length_exceeded"
