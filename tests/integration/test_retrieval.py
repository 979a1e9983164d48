"""The function that reads originals: announced where the tier says so, in the same bytes, and good for what it says."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import msgspec
import pytest

from gateway.asker import Asker
from gateway.dialects.openai_chat import OpenAIChat
from gateway.embedded import EmbeddedServer
from gateway.explain_limits import explanation
from gateway.retrieval import NAME, TOOL, announced
from gateway.store import Store
from tests.house import KEY, House, configured, gateway
from tests.integration.test_gateway_edits import ANSWER, LONG, asked, call, messages_of, result, wire
from tests.integration.test_originals import HANDLE, keeping
from tests.unit.config.samples import problems
from tests.upstream import Upstream, answers, reply, upstream

READ = {"type": "function", "function": {"name": "read_file", "parameters": {"type": "object"}}}
OWN = {"type": "function", "function": {"name": NAME}}
START = [wire("user", "Read the file."), call(1), result(1, LONG)]


class Tools(msgspec.Struct):
    """A body's tools as the bytes they are."""

    tools: list[msgspec.Raw] = msgspec.field(default_factory=list)


ACME = Asker(tenant="acme")


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(answers(reply(200, ANSWER))) as running:
        yield running


def announcing(data: dict[str, Any]) -> None:
    keeping(data)
    data["tiers"]["standard"]["context"] = {"retrieval_tool": True}


def tools_of(body: bytes) -> list[bytes]:
    return [bytes(tool) for tool in msgspec.json.decode(body, type=Tools).tools]


async def test_it_stands_behind_the_client_s_tools_in_the_same_bytes(valkey: EmbeddedServer, up: Upstream) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, announcing) as house:
        messages = [wire("user", "Read the file.")]
        await asked(house, messages, tools=[READ], session_id="chat")
        messages += [call(1), result(1, LONG)]
        await asked(house, messages, tools=[READ], session_id="chat", tool_choice="none")
        await asked(house, messages, tools=[READ], session_id="chat", temperature=0)
    for sent in up.requests:
        assert tools_of(sent.body) == [json.dumps(READ).encode(), TOOL]
    assert json.loads(up.requests[2].body)["temperature"] == 0


@pytest.mark.parametrize("fields", [{}, {"tools": []}, {"tools": None}, {"tools": [READ, OWN]}])
async def test_a_client_that_cannot_or_already_does_gets_none(
    valkey: EmbeddedServer, up: Upstream, fields: dict[str, Any]
) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, announcing) as house:
        await asked(house, START[:1], **fields)
    assert TOOL not in up.requests[0].body
    assert json.loads(up.requests[0].body).get("tools") == fields.get("tools")


@pytest.mark.parametrize("mode", ["off", "shadow"])
async def test_a_tier_that_does_not_say_so_changes_nothing(valkey: EmbeddedServer, up: Upstream, mode: str) -> None:
    def change(data: dict[str, Any]) -> None:
        announcing(data)
        if mode == "shadow":
            data["tiers"]["standard"]["mode"] = "shadow"
        else:
            del data["tiers"]["standard"]["context"]

    async with gateway({"any": {"one": up.url}}, valkey.url, change) as house:
        await asked(house, START[:1], tools=[READ])
    assert tools_of(up.requests[0].body) == [json.dumps(READ).encode()]


async def carried_out(house: House, arguments: str) -> str:
    """The function as docs/context.md gives it to clients."""
    part = json.loads(arguments)
    handle = part.pop("handle")
    headers = {"authorization": f"Bearer {KEY}"}
    answer = await house.http.get(f"/artifacts/{handle}", params={"characters": 4000} | part, headers=headers)
    return answer.json().get("content") or answer.text


async def test_a_model_that_asks_for_a_line_is_told_it(valkey: EmbeddedServer, up: Upstream) -> None:
    """A whole round: the output is cut, the model calls the function, the client carries it out, the model reads it."""
    async with gateway({"any": {"one": up.url}}, valkey.url, announcing) as house:
        await asked(house, START, tools=[READ])
        (handle,) = HANDLE.findall(messages_of(up.requests[0].body)[2].decode())
        assert b"600: the quick" not in up.requests[0].body
        arguments = json.dumps({"handle": handle, "contains": "600: the quick"})
        made = {"id": "c2", "type": "function", "function": {"name": NAME, "arguments": arguments}}
        told = await carried_out(house, arguments)
        assert told == "601: 600: the quick brown fox jumps over the lazy dog"
        turn = [wire("assistant", None, tool_calls=[made]), result(2, told)]
        answer: httpx.Response = await asked(house, [*START, *turn], tools=[READ])
        assert answer.headers["x-kvgate-context"].endswith("edits=1")
    sent = messages_of(up.requests[1].body)
    assert sent[:3] == messages_of(up.requests[0].body) and sent[3:] == turn


def test_tools_written_with_white_space_are_tools_too() -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "tools": [READ]}
    for written in (json.dumps(body, indent=2), json.dumps(body, indent=2).replace("\n  ]\n", "\n\t]\n ")):
        made = announced(OpenAIChat().parse(written.encode()))
        assert json.loads(made.body) == body | {"tools": [READ, json.loads(TOOL)]}
        assert made.overhead in made.body and made.content_bytes > len(TOOL)


def test_it_needs_something_to_read() -> None:
    found = problems(("tiers/standard/context", {"retrieval_tool": True}))
    assert "add keep_original: 24h" in found["tiers.standard.context.retrieval_tool"]


async def test_explain_reckons_with_it(store: Store) -> None:
    """What is announced is part of the prompt that is reserved."""

    def change(data: dict[str, Any]) -> None:
        announcing(data)
        hard = {"dimension": "total_tokens", "amount": "1g", "every": "day", "hardness": "strict"}
        data["tiers"]["standard"] |= {"budgets": [hard], "max_tokens": {"limit": 10}}

    body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "tools": [READ]}
    found = await explanation(
        configured({"any": {"one": "http://127.0.0.1:9"}}, change), store, b"s" * 32, ACME, body_of(body)
    )
    (row,) = found.rows
    assert int(str(row["asks"])) > len(body_of(body)) + len(TOOL) - len(b'{"model":"demo","messages":[],"tools":[]}')


def body_of(fields: dict[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()
