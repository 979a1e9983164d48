"""More ways in which gateways lost count, each by its report in public: what is charged, and what is not."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest

from bench import kept
from gateway.embedded import EmbeddedServer
from tests.house import Change, House, events, gateway, house
from tests.integration.test_gateway_pair import pair
from tests.upstream import CHUNKED, DONE, answers, chunk, frame, reply, resets_after, stalls_after, streams, upstream

SLOW: Mapping[str, Any] = {"per": "1000000d"}
TOKENS: Mapping[str, Any] = {"name": "tokens", "dimension": "total_tokens", "amount": "1g", **SLOW}
ONE_CALL: Mapping[str, Any] = {"prompt_tokens": 5, "completion_tokens": 2}
SAYS = streams(frame("one"), frame("two", finish="stop"), frame(usage=ONE_CALL), DONE)


def budgets(*limits: Mapping[str, Any], **tier: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"] |= {"budgets": list(limits)} | tier

    return change


async def in_use(running: House, bucket: str) -> int:
    return -(-(await kept.in_use(running.gateway.store)).get(bucket, 0) // 1_000_000)


async def test_tokens_are_reserved_at_admission_so_calls_at_once_do_not_overshoot(valkey: EmbeddedServer) -> None:
    """Five calls at once against 100 tokens used 663 elsewhere."""
    hundred = {"name": "hundred", "dimension": "total_tokens", "amount": 100, "hardness": "strict", **SLOW}
    change = budgets(hundred, max_tokens={"default": 8, "limit": 16})
    async with house(valkey.url, change=change) as running:
        found = await asyncio.gather(*(running.chat(max_tokens=16) for _ in range(5)))
        assert {answer.status_code for answer in found} == {200, 429}
        await running.quiet()
        assert 0 < await in_use(running, "hundred:total_tokens") <= 100


async def test_two_gateways_do_not_grant_twice(valkey: EmbeddedServer) -> None:
    """Counters in each replica gave three times the cap elsewhere."""
    async with pair(valkey, budgets({"name": "few", "dimension": "requests", "amount": 5, **SLOW})) as both:
        found = await asyncio.gather(*(each.chat() for _ in range(8) for each in both))
        assert sorted(answer.status_code for answer in found) == [200] * 5 + [429] * 11


async def test_a_call_that_expects_to_use_nothing_of_a_dimension_still_needs_room(valkey: EmbeddedServer) -> None:
    """An increment of zero before the call let 213 % through elsewhere."""
    few = {"name": "few", "dimension": "decode_tokens", "amount": 4, **SLOW}
    async with house(valkey.url, change=budgets(few)) as running:
        assert (await running.chat(max_tokens=8)).status_code == 200
        await running.quiet()
        embedding = await running.http.post(
            "/embeddings", json={"model": "demo", "input": "x"}, headers={"authorization": "Bearer sk-test-acme"}
        )
        assert (embedding.status_code, embedding.json()["error"]["requested"]) == (429, 0)


async def test_a_lone_call_larger_than_an_empty_bucket_passes(valkey: EmbeddedServer) -> None:
    """A key with a hundred tokens a minute never worked elsewhere."""
    async with house(
        valkey.url, change=budgets({"name": "small", "dimension": "total_tokens", "amount": 9, **SLOW})
    ) as h:
        assert (await h.chat("word " * 100, max_tokens=64)).status_code == 200
        await h.quiet()
        assert (await h.chat()).status_code == 429


async def test_nobody_must_say_how_long_a_reply_may_be(valkey: EmbeddedServer) -> None:
    """`max_tokens` was required elsewhere, even without a limit of tokens."""
    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS)) as running:
        sent: list[dict[str, Any]] = [{"max_tokens": None}, {"max_completion_tokens": None, "max_tokens": None}]
        for fields in sent:
            assert (await running.chat(stream=True, **fields)).status_code == 200
        await running.nothing_left()
        assert await running.charged() == 14


async def test_a_call_that_one_limit_refuses_is_counted_by_none(valkey: EmbeddedServer) -> None:
    """Calls rejected for concurrency used up requests per minute elsewhere."""
    lane = {"name": "lane", "dimension": "concurrent_calls", "amount": 1}
    many = {"name": "many", "dimension": "requests", "amount": 1_000, **SLOW}
    async with (
        upstream(stalls_after(CHUNKED, chunk(frame("one")))) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(many, lane)) as running,
    ):
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"one")
        assert [(await running.chat()).status_code for _ in range(3)] == [429] * 3
        assert await in_use(running, "many:requests") == 1
        writer.close()
        await running.nothing_left()


@pytest.mark.parametrize("mode", ["enforce", "shadow"])
async def test_calls_at_once_in_shadow_are_counted_and_refuse_nobody(valkey: EmbeddedServer, mode: str) -> None:
    lane = {"name": "lane", "dimension": "concurrent_calls", "amount": 1, "mode": mode}
    async with (
        upstream(stalls_after(CHUNKED, chunk(frame("one"))), SAYS) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(lane)) as running,
    ):
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"one")
        second = await running.chat(stream=True)
        assert second.status_code == (429 if mode == "enforce" else 200)
        assert await running.metric("kvgate_budget_denied_total", limit="lane", mode=mode) == 1
        writer.close()
        await running.nothing_left()


async def test_usage_in_every_chunk_is_not_summed(valkey: EmbeddedServer) -> None:
    """Cumulative usage in each chunk was summed to ten times the truth, or its first zeros were taken, elsewhere."""
    frames = [frame("", usage={"prompt_tokens": 5 if at else 0, "completion_tokens": at}) for at in range(6)]
    script = streams(frame("one"), *frames, frame("two", finish="stop"), DONE)
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS)) as running:
        await running.chat(stream=True)
        await running.quiet()
        assert await running.charged() == 10


@pytest.mark.parametrize("usage", [[b'data: {"choices":[],"usage":null}\n\n'], []])
async def test_a_stream_that_tells_no_usage_is_counted_on_the_way_and_says_so(
    valkey: EmbeddedServer, usage: list[bytes]
) -> None:
    """A limiter was silently off for such streams elsewhere."""
    script = streams(frame(""), *(frame("w") for _ in range(9)), frame("", finish="stop"), *usage, DONE)
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS)) as running:
        await running.chat(stream=True)
        await running.quiet()
        decode = await running.metric("kvgate_tokens_total", kind="decode")
        assert decode in (10, 11)
        assert await running.charged() == decode + await running.metric("kvgate_tokens_total", kind="prefill")
        assert await running.metric("kvgate_requests_estimated_total", tenant="acme") == 1


@pytest.mark.parametrize("usage", [{}, {"usage": None}, {"usage": {}}, {"usage": {"total_tokens": 7}}])
async def test_a_whole_answer_that_tells_no_usage_is_counted_by_what_it_says(
    valkey: EmbeddedServer, usage: Mapping[str, object]
) -> None:
    """Else whoever does not stream pays for nothing that is generated."""
    choices = [{"index": at, "message": {"role": "assistant", "content": "word " * 100}} for at in range(2)]
    script = answers(reply(200, json.dumps({"choices": choices, **usage}).encode()))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS)) as running:
        await running.chat(n=2)
        await running.quiet()
        decode = await running.metric("kvgate_tokens_total", kind="decode")
        assert 200 <= decode <= 220
        assert await running.charged() == decode + await running.metric("kvgate_tokens_total", kind="prefill")
        assert await running.metric("kvgate_requests_estimated_total", tenant="acme") == 1


async def test_of_a_stream_that_breaks_off_an_early_report_is_not_the_last_word(valkey: EmbeddedServer) -> None:
    """Some engines tell the prompt's tokens in the first frame, and zeros beside."""
    early = {"prompt_tokens": 5, "completion_tokens": 0}
    script = resets_after(CHUNKED, chunk(frame("", usage=early)), *(chunk(frame("w")) for _ in range(6)))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS)) as running:
        await running.chat(stream=True)
        await running.quiet()
        assert await running.charged() == 5 + 6
        assert await running.metric("kvgate_requests_estimated_total", tenant="acme") == 1


async def test_a_usage_frame_that_nobody_asked_for_is_not_shown(valkey: EmbeddedServer) -> None:
    """Strict parsers die on its empty `choices`."""
    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS)) as running:
        shown = events((await running.chat(stream=True)).text)
        assert len(shown) == 3
        assert not any('"usage"' in event for event in shown)
        asked = await running.chat(stream=True, stream_options={"include_usage": True})
        assert sum('"usage"' in event for event in events(asked.text)) == 1


async def test_engines_that_do_not_know_stream_options_are_not_sent_them(valkey: EmbeddedServer) -> None:
    """Injecting them made such engines answer 400 elsewhere."""

    def change(data: dict[str, Any]) -> None:
        budgets(TOKENS)(data)
        data["pools"]["any"]["features"]["usage_in_stream"] = False

    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        await running.chat(stream=True)
        assert b"stream_options" not in up.requests[0].body


async def test_a_client_that_leaves_pays_its_prompt_and_what_it_got(valkey: EmbeddedServer) -> None:
    """`curl --max-time` in the middle of a stream left no trace of spending elsewhere."""
    script = stalls_after(CHUNKED, chunk(frame("")), *(chunk(frame("w")) for _ in range(6)), chunk(frame("last")))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS)) as running:
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"last")
        writer.close()
        await running.nothing_left()
        prompt = await running.metric("kvgate_tokens_total", kind="prefill")
        assert prompt > 0
        assert await running.charged() == prompt + 7
        assert await running.gateway.store.command("XLEN", "kvgate:1:{acme}:usage:acme") == 1


@pytest.mark.parametrize("fails", [answers(reply(500, b"{}")), resets_after(), resets_after(CHUNKED)])
async def test_an_attempt_that_failed_is_not_charged_beside_the_one_that_did_not(
    valkey: EmbeddedServer, fails: Any
) -> None:
    requests = {"name": "requests", "dimension": "requests", "amount": 1_000, **SLOW}
    async with (
        upstream(fails) as bad,
        upstream(SAYS) as good,
        gateway({"any": {"bad": bad.url, "good": good.url}}, valkey.url, budgets(TOKENS, requests)) as running,
    ):
        for _ in range(4):
            assert (await running.chat(stream=True)).status_code == 200
        await running.nothing_left()
        assert len(bad.requests) >= 1
        assert (await running.charged(), await in_use(running, "requests:requests")) == (28, 4)
        records = await running.gateway.store.command("XRANGE", "kvgate:1:{acme}:usage:acme", "-", "+")
        assert isinstance(records, list)
        assert sum(b"operator" not in fields[1] for _, fields in records) == 4, "what failed is the operator's"


async def test_what_is_charged_is_what_engines_reported_and_what_headers_say_is_left(valkey: EmbeddedServer) -> None:
    """A limit of tokens charged one a request, while headers looked right, or headers never moved, elsewhere."""
    kinds = ("requests", "prefill_tokens", "cached_tokens", "decode_tokens", "total_tokens")
    limits = [{"name": kind, "dimension": kind, "amount": "1m", **SLOW} for kind in kinds]
    async with house(valkey.url, change=budgets(*limits)) as running:
        told = {"prompt_tokens": 0, "completion_tokens": 0, "cached": 0}
        for at in range(6):
            answer = await running.chat("The same beginning. " * 40 + str(at % 3), max_tokens=3 + at)
            usage = answer.json()["usage"]
            told["prompt_tokens"] += usage["prompt_tokens"]
            told["completion_tokens"] += usage["completion_tokens"]
            told["cached"] += (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            await running.quiet()
        total = told["prompt_tokens"] + told["completion_tokens"]
        charged = [await in_use(running, f"{kind}:{kind}") for kind in kinds]
        prefill = told["prompt_tokens"] - told["cached"]
        assert charged == [6, prefill, told["cached"], told["completion_tokens"], total]
        last = await running.chat()
        assert last.headers["x-ratelimit-remaining-requests"] == str(1_000_000 - 7)
        assert int(last.headers["x-ratelimit-remaining-tokens"]) < 1_000_000 - total


async def test_a_limit_holds_from_the_first_call_of_a_fresh_store(valkey: EmbeddedServer) -> None:
    """A counter that was not there yet switched enforcement off elsewhere."""
    async with house(
        valkey.url, change=budgets({"name": "one", "dimension": "requests", "amount": 1, **SLOW})
    ) as running:
        await running.gateway.store.command("FLUSHALL")
        assert [(await running.chat()).status_code for _ in range(2)] == [200, 429]


async def test_an_alias_is_resolved_before_admission(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        budgets(TOKENS)(data)
        data["models"]["other"] = {"geometry": "llama-3.1-8b", "aliases": ["nickname"]}
        data["pools"]["any"]["models"].append("other")
        data["tenants"]["acme"]["models"] = ["demo"]

    async with house(valkey.url, change=change) as running:
        refused = [await running.chat(model=name) for name in ("other", "nickname", "none")]
        assert [answer.status_code for answer in refused] == [404] * 3
        assert await running.charged() == 0


async def test_a_refusal_says_when_and_a_busy_engine_s_own_word_is_passed_on(valkey: EmbeddedServer) -> None:
    """429 came without `retry-after`, or an engine's was ignored, elsewhere."""
    few = {"name": "few", "dimension": "requests", "amount": 1, "per": "60s"}
    busy = answers(reply(503, b'{"error":{"message":"busy"}}', b"retry-after: 7"))
    async with upstream(busy) as up, gateway({"any": {"one": up.url}}, valkey.url, budgets(few)) as running:
        first: httpx.Response = await running.chat()
        assert (first.status_code, first.headers["retry-after"]) == (503, "7")
        again = await running.chat()
        assert again.status_code in (429, 503)
        assert int(again.headers["retry-after"]) >= 1
