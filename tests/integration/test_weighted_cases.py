"""Cached tokens throttled too early elsewhere, counted in full, or were missing from the limit altogether.

A limit of weighted tokens counts them at their weight, a tenth unless said otherwise, to the thousandth of a token.
"""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from bench import kept
from budgets.ledger import Amounts, Grant, reserve, settle
from budgets.limit import Limit
from budgets.scope import Scope
from budgets.weights import Weights
from gateway.asker import Asker
from gateway.desk import Desk
from gateway.embedded import EmbeddedServer
from gateway.explain_limits import explanation
from gateway.limit_desk import LimitDesk, Place
from gateway.store import Store
from tests.house import Change, House, configured, events, gateway
from tests.upstream import CHUNKED, DONE, chunk, frame, stalls_after, streams, upstream

SLOW: Mapping[str, Any] = {"per": "100000000d"}
WEIGHTED: Mapping[str, Any] = {"name": "weighted", "dimension": "weighted_tokens", "amount": "1g", **SLOW}
DEAR: Mapping[str, Any] = {**WEIGHTED, "name": "dear", "weights": {"prefill": 1, "cached": 0.025, "decode": 4}}
TOKENS: Mapping[str, Any] = {"name": "tokens", "dimension": "total_tokens", "amount": "1g", **SLOW}
USAGE = {"prompt_tokens": 1_000, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 907}}
SAYS = streams(frame("one", finish="stop"), frame(usage=USAGE), DONE)
NOWHERE = {"any": {"one": "http://127.0.0.1:1"}}
KEY = {"authorization": "Bearer sk-test-acme"}


def budgets(*limits: Mapping[str, Any], **tier: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"] |= {"budgets": list(limits)} | tier

    return change


async def thousandths(running: House, name: str) -> int:
    return -(-(await kept.in_use(running.gateway.store))[f"{name}:weighted_tokens"] // 1_000)


async def test_cached_tokens_are_charged_at_their_weight_and_total_tokens_in_full(valkey: EmbeddedServer) -> None:
    async with (
        upstream(SAYS) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(WEIGHTED, DEAR, TOKENS)) as running,
    ):
        assert (await running.chat(stream=True)).status_code == 200
        await running.nothing_left()
        assert await thousandths(running, "weighted") == 93_000 + 90_700 + 5_000
        assert await thousandths(running, "dear") == 93_000 + 22_675 + 20_000
        assert await running.charged() == 1_005
        told = (await running.http.get("/usage", headers=KEY)).json()["data"]
        assert [row["used"] for row in told] == pytest.approx([188.7, 135.675, 1_005], abs=1), "some has flowed back"
        assert [row.get("weights") for row in told] == [
            {"prefill": 1, "cached": 0.1, "decode": 1},
            {"prefill": 1, "cached": 0.025, "decode": 4},
            None,
        ]


async def test_a_session_behind_a_warm_prefix_is_not_throttled_for_what_the_cache_held(valkey: EmbeddedServer) -> None:
    """Four calls of 1,005 tokens, 907 of them cached: 755 weighted tokens. A limit of 2,000 total ones ends there."""
    few = {"name": "few", "amount": 2_000, **SLOW}
    for dimension, passed in (("weighted_tokens", [200] * 4), ("total_tokens", [200, 200, 429, 429])):
        change = budgets({**few, "dimension": dimension}, max_tokens={"limit": 5})
        async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
            found = []
            for _ in range(4):
                found.append((await running.chat(stream=True)).status_code)
                await running.quiet()
            assert found == passed, dimension


async def test_a_refusal_tells_weighted_tokens_in_tokens(valkey: EmbeddedServer) -> None:
    small = {"name": "small", "dimension": "weighted_tokens", "amount": 200, "every": "month"}
    async with (
        upstream(SAYS) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(small, max_tokens={"limit": 5})) as running,
    ):
        assert (await running.chat(stream=True)).status_code == 200
        await running.quiet()
        refused = await running.chat("word " * 40, stream=True)
        error = refused.json()["error"]
        assert (refused.status_code, error["dimension"], error["limit"], error["used"]) == (
            429,
            "weighted_tokens",
            200,
            188.7,
        )
        assert 20 < error["requested"] < 200


async def test_a_stream_ends_when_its_weighted_tokens_are_used_up(valkey: EmbeddedServer) -> None:
    """Each generated token counts for fifty: what a stream takes on its way is weighted as what it is charged."""
    heavy = {"name": "heavy", "dimension": "weighted_tokens", "amount": 1_000, **SLOW, "on_exceed": "stop"}
    limit = heavy | {"weights": {"decode": 50}}
    async with (
        upstream(stalls_after(CHUNKED, *(chunk(frame("w")) for _ in range(30)))) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(limit)) as running,
    ):
        answer = await running.chat(stream=True)
        *_, end = [json.loads(event) for event in events(answer.text)[:-1]]
        assert end["choices"][0]["finish_reason"] == "length"
        assert end["kvgate"] == {"stopped_by": "heavy", "dimension": "weighted_tokens"}
        await running.nothing_left()
        prompt = await running.metric("kvgate_tokens_total", kind="prefill")
        decode = await running.metric("kvgate_tokens_total", kind="decode")
        assert await thousandths(running, "heavy") == 1_000 * prompt + 50_000 * decode


async def test_an_engine_that_does_not_report_what_was_cached_is_taken_to_have_computed_it(
    valkey: EmbeddedServer,
) -> None:
    script = streams(frame("one", finish="stop"), frame(usage={"prompt_tokens": 50, "completion_tokens": 2}), DONE)
    async with (
        upstream(script) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(WEIGHTED)) as running,
    ):
        await running.chat(stream=True)
        await running.quiet()
        assert await thousandths(running, "weighted") == 52_000


async def test_of_a_call_whose_worker_died_the_prompt_stays_at_its_weight(store: Store) -> None:
    weights = Weights(prefill=500, cached=0, decode=2_000)
    limit = Limit(name="w", dimension="weighted_tokens", amount=10**9, per_seconds=1e9, weights=weights)
    asked: Amounts = {"requests": 1, "prefill_tokens": 60, "decode_tokens": 40, "total_tokens": 100}
    scope = Scope("acme", (limit,))
    dead = await reserve(store.run, scope, asked)
    assert isinstance(dead, Grant)
    await kept.pass_time(store, 901)
    other = await reserve(store.run, scope, {"requests": 1})
    assert isinstance(other, Grant)
    assert other.balances[0].remaining == pytest.approx(10**9 - 30_000, abs=1_000)
    await settle(store.run, dead, {"prefill_tokens": 60, "decode_tokens": 1})
    again = await reserve(store.run, scope, {})
    assert isinstance(again, Grant)
    assert again.balances[0].remaining == pytest.approx(10**9 - 32_000, abs=1_000)


async def test_explain_says_what_tokens_count_for(store: Store) -> None:
    body = json.dumps({"model": "demo", "max_tokens": 10, "messages": [{"role": "user", "content": "Hello"}]}).encode()
    config = configured(NOWHERE, budgets(DEAR, TOKENS, max_tokens={"limit": 10}))
    found = await explanation(config, store, b"s" * 32, Asker(tenant="acme"), body)
    dear, tokens = found.rows
    assert dear["dimension"] == "weighted_tokens (prefill 1, cached 0.025, decode 4)"
    assert tokens["dimension"] == "total_tokens"
    assert dear["asks"] == float(str(tokens["asks"])) + 3 * 10, "a prompt is reserved as if nothing were cached"


async def test_weights_can_be_given_at_run_time_and_amounts_are_in_tokens(store: Store) -> None:
    desk = Desk(lambda: configured(NOWHERE, None), store, lambda: b"s" * 32, "ann", "cli")
    await desk.create("beta", {"tier": "standard", "budgets": [{**DEAR, "amount": "2k"}]})
    limits = LimitDesk(desk, store)
    _, before = await limits.set_used(Place("beta", "dear"), "150", "a test")
    assert (before.before, before.reserved) == (0, 0)
    (row,) = [each for each in await limits.accounts("beta") if each.terms.limit.label == "dear"]
    assert (row.used, row.terms.limit.capacity) == (150_000, 2_000_000)
