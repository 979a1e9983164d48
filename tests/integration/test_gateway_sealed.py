"""Text at rest: sealed where keys are set; what cannot be opened is as if it were not there, and never an error."""

import base64
import itertools
import re
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from gateway.store import Store
from tests.house import KEY, House, gateway
from tests.integration.test_gateway_edits import ANSWER, START, asked, messages_of, wire
from tests.integration.test_originals import dumped
from tests.upstream import Upstream, answers, reply, upstream

ONE, TWO = ("one:" + base64.b64encode(bytes([n]) * 32).decode() for n in (1, 2))
SESSION = "kvgate:1:{acme}:s:chat"


@pytest.fixture
async def up() -> AsyncIterator[Upstream]:
    async with upstream(answers(reply(200, ANSWER))) as running:
        yield running


def trimming(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["policies"] = [{"kind": "trim_tool_output", "max_tokens": 1_000}]


async def turns(house: House, messages: list[bytes], count: int = 1) -> None:
    for number in range(count):
        await asked(house, messages, session_id="chat")
        messages += [wire("assistant", f"Answer {number}."), wire("user", f"Question {number}?")]


async def memory(store: Store) -> bytes:
    found = await store.command("HGET", SESSION, "e0", key=SESSION)
    assert isinstance(found, bytes)
    return found


def steady(up: Upstream) -> bool:
    """Whether every request began with the very bytes of the one before."""
    sent = [messages_of(request.body) for request in up.requests]
    return all(later[: len(earlier)] == earlier for earlier, later in itertools.pairwise(sent))


@pytest.mark.parametrize(("keys", "first"), [(None, b"\x00"), (ONE, b"\x01")])
async def test_edits_in_force_are_sealed_where_there_are_keys(
    valkey: EmbeddedServer, store: Store, up: Upstream, keys: str | None, first: bytes
) -> None:
    async with gateway({"any": {"one": up.url}}, valkey.url, trimming, store_keys=keys) as house:
        await turns(house, list(START), 3)
        stored = await memory(store)
        assert stored[:1] == first
        assert (b"removed_tokens" in stored) is (keys is None)
        assert steady(up)
        assert await house.metric("kvgate_store_unopened_total") == 0


@pytest.mark.parametrize(("before", "after"), [(None, ONE), (ONE, f"{TWO.replace('one', 'two')},{ONE}")])
async def test_keys_are_brought_in_and_changed_while_sessions_live(
    valkey: EmbeddedServer, store: Store, up: Upstream, before: str | None, after: str
) -> None:
    messages = list(START)
    async with gateway({"any": {"one": up.url}}, valkey.url, trimming, store_keys=before) as house:
        await turns(house, messages, 2)
    old = await memory(store)
    async with gateway({"any": {"one": up.url}}, valkey.url, trimming, flush=False, store_keys=after) as house:
        await turns(house, messages, 2)
        assert await house.metric("kvgate_store_unopened_total") == 0
        assert await house.metric("kvgate_sessions_total", found="known") == 2
    assert steady(up)
    assert (await memory(store))[:5] == (b"\x01\x03one" if before is None else b"\x01\x03two") != old[:5]


@pytest.mark.parametrize("other", [None, TWO])
async def test_edits_that_cannot_be_opened_are_made_anew(
    valkey: EmbeddedServer, store: Store, up: Upstream, other: str | None
) -> None:
    """As for a cold prefix: the output is cut again although the session says it was sent before."""
    messages = list(START)
    async with gateway({"any": {"one": up.url}}, valkey.url, trimming, store_keys=ONE) as house:
        await turns(house, messages, 2)
    async with gateway({"any": {"one": up.url}}, valkey.url, trimming, flush=False, store_keys=other) as house:
        await turns(house, messages, 2)
        assert await house.metric("kvgate_store_unopened_total", what="edits") == 1, "then they are its own"
    assert steady(up), "and to the same bytes"


async def test_edits_that_somebody_changed_are_not_believed(valkey: EmbeddedServer, store: Store, up: Upstream) -> None:
    messages = list(START)
    async with gateway({"any": {"one": up.url}}, valkey.url, trimming, store_keys=ONE) as house:
        await turns(house, messages)
        stored = await memory(store)
        for forged in (stored[:-1] + bytes([stored[-1] ^ 1]), stored[:20], b"\xff" + stored):
            await store.command("HSET", SESSION, "e0", forged, key=SESSION)
            await turns(house, messages)
        assert await house.metric("kvgate_store_unopened_total", what="edits") == 3
    assert steady(up)


ONLY_HERE = "zanzibar"
"""A word that stands in everything that is said, and nowhere else."""
SAID = b'{"choices":[{"index":0,"message":{"role":"assistant","content":"zanzibar!"},"finish_reason":"stop"}]}'


def keeping_all(data: dict[str, Any]) -> None:
    """Every feature that stores text."""
    policies: list[dict[str, Any]] = [
        {"kind": "trim_tool_output", "max_tokens": 1_000, "keep_original": "24h"},
        {"kind": "summarize_older_turns", "by": "facts", "high_water_tokens": "3k", "low_water_tokens": "2k"},
    ]
    data["tiers"]["standard"] |= {"policies": policies, "session": {"history": "stored"}}


async def everything(house: House) -> None:
    """Four turns of a session that leave behind all that can be left behind."""
    headers = {"authorization": f"Bearer {KEY}", "x-session-id": "chat", "x-context": "stored; new"}
    output = "\n".join(f"{number}: {ONLY_HERE} and back" for number in range(1_200))
    call = {"id": "c", "type": "function", "function": {"name": ONLY_HERE, "arguments": "{}"}}
    first: list[dict[str, Any]] = [
        {"role": "user", "content": f"Read about {ONLY_HERE}."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": output},
    ]
    for number in range(4):
        said = first if not number else [{"role": "user", "content": f"{number}. More of {ONLY_HERE}. " * 300}]
        answer = await house.http.post("/chat/completions", json={"model": "demo", "messages": said}, headers=headers)
        assert answer.status_code == 200, answer.text
        await house.quiet()
        headers["x-context"] = "stored"


async def stored(store: Store) -> dict[str, bytes]:
    found = await store.command("KEYS", "*")
    assert isinstance(found, list)
    return {key.decode(): await dumped(store, key.decode()) for key in found}


@pytest.mark.parametrize("keys", [None, ONE])
async def test_whatever_is_stored_no_word_of_it_lies_open(
    valkey: EmbeddedServer, store: Store, keys: str | None
) -> None:
    async with (
        upstream(answers(reply(200, SAID))) as up,
        gateway({"any": {"one": up.url}}, valkey.url, keeping_all, store_keys=keys) as house,
    ):
        await everything(house)
        found = await stored(store)
    assert any(":o:" in key for key in found) and any(":h:" in key for key in found)
    open_ = [key for key, value in found.items() if ONLY_HERE.encode() in value]
    assert bool(open_) is (keys is None), open_


async def test_deletion_leaves_accounts_and_nothing_else(valkey: EmbeddedServer, store: Store) -> None:
    async with (
        upstream(answers(reply(200, SAID))) as up,
        gateway({"any": {"one": up.url}}, valkey.url, keeping_all) as house,
    ):
        await everything(house)
        answer = await house.http.delete("/sessions/chat", headers={"authorization": f"Bearer {KEY}"})
        assert answer.status_code == 200
        await house.quiet()
        left = await stored(store)
    assert not [key for key, value in left.items() if ONLY_HERE.encode() in value]
    accounts = re.compile(r"kvgate:[12]:(?!.*:(s|o|h|kept|sessions|texts)\b).*")
    assert not [key for key in left if accounts.fullmatch(key) is None]
