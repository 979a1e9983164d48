"""A dry run says what would be sent, and nothing of it happens; applied edits are told to those who ask."""

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from tests.house import KEY, House, gateway
from tests.integration.test_gateway_edits import ANSWER, START
from tests.upstream import Upstream, answers, reply, upstream

DRY = {"x-kvgate-dry-run": "1"}


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(answers(reply(200, ANSWER))) as running:
        yield running


@pytest.fixture
async def house(valkey: EmbeddedServer, up: Upstream) -> AsyncIterator[House]:
    def change(data: dict[str, Any]) -> None:
        tier = data["tiers"]["standard"]
        tier["policies"] = [
            {"kind": "trim_tool_output", "max_tokens": 1_000},
            {"kind": "dedupe_tool_output", "mode": "shadow"},
        ]
        tier["context"] = {"limit_tokens": "24k"}

    async with gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        yield running


async def asked(house: House, messages: list[bytes], **headers: str) -> httpx.Response:
    body = b'{"model":"demo","messages":[%b]}' % b",".join(messages)
    told = {"authorization": f"Bearer {KEY}", "content-type": "application/json"} | headers
    answer = await house.http.post("/chat/completions", content=body, headers=told)
    await house.quiet()
    return answer


async def test_a_dry_run_tells_the_plan_and_nothing_happens(house: House, up: Upstream) -> None:
    answer = await asked(house, START, **DRY)
    plan = answer.json()
    assert answer.status_code == 200 and plan["object"] == "kvgate.plan"
    (edit,) = plan["edits"]
    assert (edit["policy"], edit["reason"], edit["messages"]) == ("trim_tool_output", "arrival", [3, 3])
    assert plan["original_tokens"] - plan["sent_tokens"] == edit["removed_tokens"] > 5_000
    assert plan["predicted"]["kv_read_bytes_saved"] > 0 and plan["predicted"]["broken_tokens"] == 0
    assert "- 7" in plan["diff"] or "lines more" in plan["diff"]
    assert plan["session"] == {"status": "new", "known_messages": 0}
    assert answer.headers["x-kvgate-context"].endswith("edits=1")
    assert up.requests == []
    assert await house.charged() == 0
    assert await house.metric("kvgate_requests_total", outcome="dry_run") == 1
    assert await house.metric("kvgate_context_edits_total") == 0
    assert await house.metric("kvgate_attempts_total") == 0
    await house.nothing_left()


async def test_a_session_is_read_and_not_written_by_a_dry_run(house: House, up: Upstream) -> None:
    await asked(house, START)
    again = await asked(house, START, **DRY)
    assert again.json()["session"]["known_messages"] == len(START)
    assert [edit["reason"] for edit in again.json()["edits"]] == ["again"]
    assert (await asked(house, [START[0], b'{"role":"user","content":"Other"}'], **DRY)).json()["edits"] == []
    before = await house.metric("kvgate_sessions_live", tenant="acme")
    assert (before, len(up.requests)) == (1, 1)


async def test_what_stands_at_the_engine_is_told_of_prompts_that_need_no_count_too(house: House) -> None:
    asks, answer = b'{"role":"user","content":"%b"}' % (b"word " * 400), b'{"role":"assistant","content":"So."}'
    new = (await asked(house, [asks], **DRY)).json()
    assert (new["counted"], new["predicted"]["cached_tokens"]) == (False, 0)
    await asked(house, [asks])
    again = (await asked(house, [asks, answer, asks], **DRY)).json()
    assert (again["counted"], again["session"]["known_messages"]) == (False, 1)
    assert again["sent_tokens"] / 3 < again["predicted"]["cached_tokens"] <= again["sent_tokens"]
    assert (again["predicted"]["broken_tokens"], again["predicted"]["prefill_seconds_saved"]) == (0, 0)


async def test_a_dry_run_of_what_would_be_refused_is_refused(house: House) -> None:
    long = json.dumps({"role": "user", "content": "word " * 30_000}).encode()
    answer = await asked(house, [long], **DRY)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("off", ["0", "false", ""])
async def test_a_header_that_says_no_is_no_dry_run(house: House, up: Upstream, off: str) -> None:
    await asked(house, START, **{"x-kvgate-dry-run": off})
    assert len(up.requests) == 1


async def test_applied_edits_are_told_on_request_and_the_body_stays(house: House, up: Upstream) -> None:
    plain = await asked(house, START)
    told = await asked(house, START, **{"x-kvgate-applied-edits": "1"})
    assert "x-kvgate-applied-edits" not in plain.headers
    (edit,) = json.loads(told.headers["x-kvgate-applied-edits"])
    assert edit.pop("removed_tokens") > 5_000
    assert edit == {"policy": "trim_tool_output", "reason": "again", "edits": 1}
    assert plain.content == told.content == ANSWER
    unedited = await asked(house, START[:2], **{"x-kvgate-applied-edits": "1"})
    assert json.loads(unedited.headers["x-kvgate-applied-edits"]) == []
    names = [name for request in up.requests for name, _ in request.headers]
    assert not [name for name in names if name.startswith(b"x-kvgate")]
