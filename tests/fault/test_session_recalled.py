"""A store that misses a turn: the session goes on to the same bytes, and is written when the store answers."""

import json
from collections.abc import AsyncIterator
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.fault.store_proxy import StoreProxy, store_proxy
from tests.house import KEY, House, gateway, until
from tests.upstream import Upstream, answers, reply, upstream

ANSWER = json.dumps(
    {
        "id": "x",
        "object": "chat.completion",
        "model": "demo",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": "Yes."}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 100, "completion_tokens": 2},
    }
).encode()
LINE = "the quick brown fox jumps over the lazy dog\n"


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(answers(reply(200, ANSWER))) as running:
        yield running


def changing(data: dict[str, Any]) -> None:
    """A window in steps, and a trim: both are decided once and must be made again."""
    policies = [
        {"kind": "trim_tool_output", "max_tokens": 200},
        {"kind": "keep_recent_turns", "turns": 2, "high_water_turns": 5},
    ]
    data["tiers"]["standard"] |= {"policies": policies}


def talk(turns: int) -> list[dict[str, Any]]:
    """The task with a long tool output, and so many turns."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": LINE * 100},
        {"role": "assistant", "content": "Seen."},
    ]
    for at in range(turns):
        messages += [{"role": "user", "content": f"Question {at}?"}, {"role": "assistant", "content": "Yes."}]
    return messages[:-1]


async def ask(house: House, turns: int, session: str = "chat") -> None:
    body = {"model": "demo", "messages": talk(turns), "max_tokens": 8}
    headers = {"authorization": f"Bearer {KEY}", "x-session-id": session}
    answer = await house.http.post("/chat/completions", json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    await house.quiet()


def sent(up: Upstream, at: int = -1) -> list[Any]:
    messages: list[Any] = json.loads(up.requests[at].body)["messages"]
    return messages


def goes_on(up: Upstream) -> bool:
    """Whether the last prompt begins with the one before."""
    earlier, later = sent(up, -2), sent(up)
    return later[: len(earlier)] == earlier


async def lose(house: House, proxy: StoreProxy) -> None:
    proxy.away()
    await until(lambda: not house.gateway.store.available)


async def find(house: House, proxy: StoreProxy) -> None:
    proxy.back()
    await until(lambda: house.gateway.store.available)


async def test_a_turn_that_misses_the_store_goes_on_to_the_same_bytes(valkey: EmbeddedServer, up: Upstream) -> None:
    async with store_proxy(valkey.url) as proxy, gateway({"any": {"one": up.url}}, proxy.url, changing) as house:
        await ask(house, 6)
        assert len(sent(up)) < len(talk(6)), "the window has moved"
        await lose(house, proxy)
        for turns in (7, 8):
            await ask(house, turns)
            assert goes_on(up), "with the window where it was, and not anew"
        assert await house.metric("kvgate_sessions_total", found="recalled") == 2
        await find(house, proxy)
        await until(lambda: not house.gateway.sessions_waiting())
        assert await house.metric("kvgate_sessions_late_total", result="written") == 1, "both turns in one record"
        await ask(house, 9)
        assert goes_on(up)
        assert await house.metric("kvgate_sessions_total", found="known") == 1


async def test_another_gateway_goes_on_with_what_was_written_late(valkey: EmbeddedServer, up: Upstream) -> None:
    urls = {"any": {"one": up.url}}
    async with (
        store_proxy(valkey.url) as proxy,
        gateway(urls, proxy.url, changing) as one,
        gateway(urls, valkey.url, changing, flush=False) as two,
    ):
        await ask(one, 5)
        await lose(one, proxy)
        await ask(one, 6)
        await find(one, proxy)
        await until(lambda: not one.gateway.sessions_waiting())
        await ask(two, 7)
        assert goes_on(up)
        await ask(one, 8)
        assert goes_on(up)


async def test_a_session_that_began_while_the_store_was_away_is_kept(valkey: EmbeddedServer, up: Upstream) -> None:
    async with store_proxy(valkey.url) as proxy, gateway({"any": {"one": up.url}}, proxy.url, changing) as house:
        await lose(house, proxy)
        for turns in (6, 7):
            await ask(house, turns)
        assert goes_on(up)
        await find(house, proxy)
        await until(lambda: not house.gateway.sessions_waiting())
        await ask(house, 8)
        assert goes_on(up)
        assert await house.metric("kvgate_sessions_total", found="known") == 1


async def test_a_record_that_waits_lends_its_edits_although_the_store_answers(
    valkey: EmbeddedServer, up: Upstream
) -> None:
    """The write was lost, the next read is not: what was read is older than what was sent."""
    async with store_proxy(valkey.url) as proxy, gateway({"any": {"one": up.url}}, proxy.url, changing) as house:
        await ask(house, 5)
        await lose(house, proxy)
        await ask(house, 6)
        assert not goes_on(up), "the window moves in this turn"
        proxy.back()
        await until(lambda: house.gateway.store.available)
        await ask(house, 7)
        assert goes_on(up)


async def test_a_session_deleted_meanwhile_is_not_remembered(valkey: EmbeddedServer, up: Upstream) -> None:
    async with store_proxy(valkey.url) as proxy, gateway({"any": {"one": up.url}}, proxy.url, changing) as house:
        await ask(house, 6)
        headers = {"authorization": f"Bearer {KEY}"}
        assert (await house.http.delete("/sessions/chat", headers=headers)).status_code == 200
        await lose(house, proxy)
        await ask(house, 7)
        assert await house.metric("kvgate_sessions_total", found="unread") == 1


async def test_another_session_or_a_fork_of_it_gets_none_of_it(valkey: EmbeddedServer, up: Upstream) -> None:
    async with store_proxy(valkey.url) as proxy, gateway({"any": {"one": up.url}}, proxy.url, changing) as house:
        await ask(house, 6)
        await lose(house, proxy)
        await ask(house, 6, session="other")
        assert await house.metric("kvgate_sessions_total", found="recalled") == 0
        body = {"model": "demo", "messages": [{"role": "user", "content": "Otherwise."}, *talk(6)], "max_tokens": 8}
        headers = {"authorization": f"Bearer {KEY}", "x-session-id": "chat"}
        assert (await house.http.post("/chat/completions", json=body, headers=headers)).status_code == 200
        assert await house.metric("kvgate_sessions_total", found="recalled") == 0


@pytest.mark.parametrize("seed", range(4))
async def test_whatever_the_store_misses_no_message_and_no_edit_is_lost(
    valkey: EmbeddedServer, up: Upstream, seed: int
) -> None:
    """Turns of one session by two gateways in random order, the store of one of them coming and going."""
    r, urls = Random(seed), {"any": {"one": up.url}}
    async with (
        store_proxy(valkey.url) as proxy,
        gateway(urls, proxy.url, changing) as one,
        gateway(urls, valkey.url, changing, flush=False) as two,
    ):
        for turns in range(1, 14):
            if r.random() < 0.4:
                await (lose(one, proxy) if proxy.reachable else find(one, proxy))
            await ask(r.choice((one, two)), turns)
            outputs = {message["content"] for message in sent(up) if message["role"] == "tool"}
            assert outputs <= {sent(up, 0)[2]["content"]}, "what was trimmed stays trimmed so"
        await find(one, proxy)
        await until(lambda: not one.gateway.sessions_waiting())
        body = {"model": "demo", "messages": talk(14), "max_tokens": 8}
        headers = {"authorization": f"Bearer {KEY}", "x-session-id": "chat", "x-kvgate-dry-run": "1"}
        plan = (await two.http.post("/chat/completions", json=body, headers=headers)).json()
        assert plan["session"] == {"status": "known", "known_messages": len(talk(13))}
        assert {edit["reason"] for edit in plan["edits"]} <= {"again", "mark"}
        assert [edit["reason"] for edit in plan["edits"] if edit["policy"] == "trim_tool_output"] in ([], ["again"])
        for house in (one, two):
            assert await house.metric("kvgate_context_violations_total") == 0


async def test_records_that_are_written_but_not_answered_in_time_change_nothing(
    valkey: EmbeddedServer, up: Upstream
) -> None:
    """The store is slow, not away: it has what it was sent, and is sent it again."""
    urls = {"any": {"one": up.url}}
    async with (
        store_proxy(valkey.url) as proxy,
        gateway(urls, proxy.url, changing, store_timeout_seconds=0.5) as house,
    ):
        await ask(house, 4)
        for turns in range(5, 11):
            proxy.answering.clear()
            body = {"model": "demo", "messages": talk(turns), "max_tokens": 8}
            headers = {"authorization": f"Bearer {KEY}", "x-session-id": "chat"}
            assert (await house.http.post("/chat/completions", json=body, headers=headers)).status_code == 200
            proxy.answering.set()
            await house.quiet()
            await until(lambda: house.gateway.store.available)
        moves = sum(later[: len(earlier)] != earlier for earlier, later in pairwise([sent(up, at) for at in range(7)]))
        assert moves == 2, "as often as the window moves"
        await until(lambda: not house.gateway.sessions_waiting())
        await ask(house, 11)
        assert goes_on(up)
