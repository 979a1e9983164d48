"""Changed policies: what was sent stays as it is until the prefix is cold, or until a request asks for them."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import KEY, Change, House, gateway
from tests.integration.test_gateway_edits import ANSWER, LONG, call, result, wire
from tests.upstream import Upstream, answers, reply, upstream

START = [wire("user", "Read the file."), call(1), result(1, LONG)]
MORE = [*START, wire("assistant", "Yes."), wire("user", "And?")]
STILL_MORE = [*MORE, wire("assistant", "Yes."), wire("user", "And now?")]


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(answers(reply(200, ANSWER))) as running:
        yield running


def trimming(tokens: int) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"] |= {"policies": [{"kind": "trim_tool_output", "max_tokens": tokens}]}

    return change


async def ask(house: House, messages: list[bytes], **headers: str) -> dict[str, str]:
    body = b'{"model":"demo","max_tokens":8,"messages":[' + b",".join(messages) + b"]}"
    sent = {"authorization": f"Bearer {KEY}", "content-type": "application/json", "x-session-id": "chat"}
    sent |= {"x-kvgate-applied-edits": "1"} | headers
    answer = await house.http.post("/chat/completions", content=body, headers=sent)
    assert answer.status_code == 200, answer.text
    await house.quiet()
    told: list[dict[str, str]] = json.loads(answer.headers["x-kvgate-applied-edits"])
    return {each["policy"]: each["reason"] for each in told}


def output(up: Upstream) -> int:
    return len(json.loads(up.requests[-1].body)["messages"][2]["content"])


async def test_a_request_may_ask_for_the_policies_of_today(valkey: EmbeddedServer, up: Upstream) -> None:
    urls = {"any": {"one": up.url}}
    async with gateway(urls, valkey.url, trimming(1_000)) as house:
        assert await ask(house, START) == {"trim_tool_output": "arrival"}
        before = output(up)
    async with gateway(urls, valkey.url, trimming(200), flush=False) as house:
        assert await ask(house, MORE) == {"trim_tool_output": "again"}
        assert output(up) == before, "what was sent stays as it was"
        assert await ask(house, MORE, **{"x-kvgate-replan": "0"}) == {"trim_tool_output": "again"}
        assert await ask(house, MORE, **{"x-kvgate-replan": "1"}) == {"trim_tool_output": "cold"}
        after = output(up)
        assert after < before / 3
        assert await house.metric("kvgate_prefix_breaks_total", kind="expected") == 1
        assert await ask(house, STILL_MORE) == {"trim_tool_output": "again"}
        assert output(up) == after, "and is remembered so"


async def test_they_hold_where_the_session_s_replica_is_gone(valkey: EmbeddedServer, up: Upstream) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, trimming(1_000)) as house:
        await ask(house, START)
        before = output(up)
    async with gateway({"any": {"two": up.url}}, valkey.url, trimming(200), flush=False) as house:
        assert await ask(house, MORE) == {"trim_tool_output": "cold"}
        assert output(up) < before / 3


async def test_policies_that_are_gone_leave_nothing_behind(valkey: EmbeddedServer, up: Upstream) -> None:
    def bare(data: dict[str, Any]) -> None:
        data["tiers"]["standard"] |= {"policies": []}

    urls = {"any": {"one": up.url}}
    async with gateway(urls, valkey.url, trimming(1_000)) as house:
        await ask(house, START)
    async with gateway(urls, valkey.url, bare, flush=False) as house:
        assert await ask(house, MORE) == {"trim_tool_output": "again"}
        assert await ask(house, MORE, **{"x-kvgate-replan": "1"}) == {}
        assert output(up) == len(LONG)
        assert await ask(house, STILL_MORE) == {}, "nothing is remembered any more"
