"""Ways in which budgets of other gateways were overrun, leaked, or were got around, each by its report in public."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import Change, House, gateway, house
from tests.upstream import CHUNKED, answers, chunk, frame, reply, resets_after, stalls_after, streams, upstream

ONE_LANE: Mapping[str, Any] = {"name": "lane", "dimension": "concurrent_calls", "amount": 1}
TOKENS: Mapping[str, Any] = {"name": "tokens", "dimension": "total_tokens", "amount": "1g", "per": "1000000d"}
FEW: Mapping[str, Any] = {"name": "few", "dimension": "requests", "amount": 3, "every": "month"}


def budgets(*limits: Mapping[str, Any], session: bool = False) -> Change:
    def change(data: dict[str, Any]) -> None:
        tier = data["tiers"]["standard"]
        tier["budgets"] = [TOKENS] if session else list(limits)
        tier["session"] = {"budgets": list(limits)} if session else {}

    return change


async def slots(running: House) -> object:
    return await running.gateway.store.command("ZCARD", "kvgate:1:{acme}:slots:lane:concurrent_calls")


@pytest.mark.parametrize("session", [False, True])
async def test_calls_that_come_at_once_do_not_all_see_the_same_room(valkey: EmbeddedServer, session: bool) -> None:
    async with house(valkey.url, change=budgets(FEW, session=session)) as running:
        answers = await asyncio.gather(*(running.chat(session_id="one") for _ in range(12)))
        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 9
        await running.nothing_left()


async def test_first_calls_of_a_session_nobody_has_seen_meet_its_limit(valkey: EmbeddedServer) -> None:
    small = {"name": "small", "dimension": "total_tokens", "amount": 30, "every": "day", "hardness": "strict"}

    def change(data: dict[str, Any]) -> None:
        budgets(small, session=True)(data)
        data["tiers"]["standard"]["max_tokens"] = {"default": 8}

    async with house(valkey.url, change=change) as running:
        answers = await asyncio.gather(*(running.chat(session_id="new", max_tokens=29) for _ in range(8)))
        assert {answer.status_code for answer in answers} == {429}


async def test_every_route_that_costs_an_engine_is_counted(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=budgets(FEW)) as running:
        key = {"authorization": "Bearer sk-test-acme"}
        sent = (
            ("/completions", {"model": "demo", "prompt": "Hello", "max_tokens": 4}),
            ("/embeddings", {"model": "demo", "input": "Hello"}),
            ("/chat/completions", {"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}),
        )
        for path, body in sent:
            await running.http.post(path, json=body, headers=key)
        refused = [(await running.http.post(path, json=body, headers=key)).status_code for path, body in sent]
        assert refused == [429] * 3
        unknown = await running.http.post("/audio/speech", json={"model": "demo"}, headers=key)
        assert unknown.status_code == 404


@pytest.mark.parametrize(("path", "field"), [("/completions", "prompt"), ("/embeddings", "input")])
async def test_a_list_of_prompts_is_no_way_around_a_strict_limit(valkey: EmbeddedServer, path: str, field: str) -> None:
    """The limit of a context is one of each prompt, so it says nothing of what many of them come to."""
    hard = {"name": "hard", "dimension": "total_tokens", "amount": 3_000, "every": "day", "hardness": "strict"}

    def change(data: dict[str, Any]) -> None:
        budgets(hard)(data)
        data["tiers"]["standard"] |= {"context": {"limit_tokens": 400}, "max_tokens": {"default": 8}, "policies": []}

    async with house(valkey.url, change=change) as running:
        body = {"model": "demo", field: ["word " * 300] * 20, "max_tokens": 1}
        answer = await running.http.post(path, json=body, headers={"authorization": "Bearer sk-test-acme"})
        assert answer.status_code == 429, answer.text
        assert (await running.chat()).status_code == 200


@pytest.mark.parametrize(
    "fails",
    [
        answers(reply(500, b'{"error":{"message":"no"}}')),
        answers(reply(400, b'{"error":{"message":"no"}}')),
        resets_after(),
        resets_after(CHUNKED, chunk(frame("one"))),
    ],
)
async def test_a_slot_comes_back_however_its_call_ended(valkey: EmbeddedServer, fails: Any) -> None:
    async with (
        upstream(fails) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(ONE_LANE, TOKENS)) as running,
    ):
        for _ in range(3):
            answer = await running.chat(stream=True)
            assert answer.status_code != 429
            await running.quiet()
            assert await slots(running) == 0
        await running.nothing_left()


async def test_a_slot_comes_back_when_its_client_leaves(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, chunk(frame("one")))
    async with (
        upstream(script, streams(frame("two", finish="stop"), b"data: [DONE]\n\n")) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(ONE_LANE, TOKENS)) as running,
    ):
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"one")
        busy = await running.chat()
        assert (busy.status_code, busy.json()["error"]["dimension"]) == (429, "concurrent_calls")
        assert busy.headers["retry-after"] == "1"
        assert await running.charged() < 10_000, "a call without a slot reserved no tokens either"
        writer.close()
        await running.quiet()
        assert (await running.chat(stream=True)).status_code == 200
        await running.nothing_left()


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_tokens": 7, "completion_tokens": 0}, 7),
        ({"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 60}}, 105),
    ],
)
async def test_what_the_engine_reports_is_charged_zero_and_cached_as_they_are(
    valkey: EmbeddedServer, usage: Mapping[str, object], tokens: int
) -> None:
    cached = {"name": "cached", "dimension": "cached_tokens", "amount": "1g", "per": "1000000d"}
    script = streams(frame("one"), frame("two", finish="stop"), frame(usage=usage), b"data: [DONE]\n\n")
    async with (
        upstream(script) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budgets(TOKENS, cached)) as running,
    ):
        assert (await running.chat(stream=True)).status_code == 200
        await running.quiet()
        assert await running.charged() == tokens
        assert await running.charged(bucket="cached:cached_tokens") == (60 if tokens == 105 else 0)
        told = await running.http.get("/usage", headers={"authorization": "Bearer sk-test-acme"})
        assert [row["used"] for row in told.json()["data"]] == [tokens, 60 if tokens == 105 else 0]
