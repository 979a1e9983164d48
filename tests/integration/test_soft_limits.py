"""Soft limits: what a call gets when a budget runs low, what its client is told, and what is counted."""

import asyncio
import json
import socket
from collections.abc import Mapping
from typing import Any

import pytest

from bench import kept
from gateway.embedded import EmbeddedServer
from tests.house import Change, House, events, gateway, house
from tests.upstream import CHUNKED, DONE, Peer, Upstream, chunk, frame, streams, upstream

FOUR: Mapping[str, Any] = {"name": "four", "dimension": "requests", "amount": 4, "per": "1000000d"}
USAGE: Mapping[str, object] = {"prompt_tokens": 5, "completion_tokens": 2}
SAYS = streams(frame("one"), frame("two", finish="stop"), frame(usage=USAGE), DONE)


def soft(*steps: Mapping[str, Any], budgets: tuple[Mapping[str, Any], ...] = (FOUR,), **tier: Any) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"] |= {"budgets": list(budgets), "soft": list(steps)} | tier
        data["pools"]["any"]["features"]["priority"] = True

    return change


def sent(up: Upstream, at: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(up.requests[at].body)
    return found


async def read_bytes(running: House) -> int:
    return (await kept.in_use(running.gateway.store))["reads:kv_read_bytes"]


async def used_up_to_half(running: House) -> None:
    for _ in range(2):
        answer = await running.chat(stream=True)
        assert answer.status_code == 200
        assert "x-kvgate-degraded" not in answer.headers
    await running.quiet()


async def test_replies_are_shorter_and_less_urgent_from_a_share_of_a_budget_on(valkey: EmbeddedServer) -> None:
    step = {"at": "50%", "max_tokens": 5, "priority": 7}
    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, soft(step)) as running:
        await used_up_to_half(running)
        answer = await running.chat(stream=True)
        assert answer.headers["x-kvgate-degraded"] == "four=50%;max_tokens=5;priority=7"
        assert [sent(up, at).get("max_tokens") for at in range(3)] == [8, 8, 5]
        assert [sent(up, at).get("priority") for at in range(3)] == [None, None, 7]
        assert await running.metric("kvgate_budget_degraded_total", limit="four", mode="enforce") == 2
        assert await running.metric("kvgate_budget_degraded_total", action="priority", tenant="acme") == 1
        await running.nothing_left()


async def test_a_step_in_shadow_is_counted_and_changes_nothing(valkey: EmbeddedServer) -> None:
    step = {"at": "50%", "max_tokens": 5, "mode": "shadow"}
    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, soft(step)) as running:
        await used_up_to_half(running)
        answer = await running.chat(stream=True)
        assert "x-kvgate-degraded" not in answer.headers
        assert sent(up, 2)["max_tokens"] == 8
        assert await running.metric("kvgate_budget_degraded_total", action="max_tokens", mode="shadow") == 1


async def test_the_highest_step_that_is_reached_holds_alone(valkey: EmbeddedServer) -> None:
    steps = ({"at": "70%", "max_tokens": 4}, {"at": "50%", "max_tokens": 6}, {"at": "20%", "priority": 3, "of": ["no"]})
    no = {"name": "no", "dimension": "total_tokens", "amount": "1g", "per": "1000000d"}
    change = soft(*steps, budgets=(FOUR, no))
    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        for _ in range(4):
            await running.chat(stream=True)
        assert [sent(up, at)["max_tokens"] for at in range(4)] == [8, 8, 6, 4]
        assert "priority" not in sent(up, 3)


async def test_a_context_that_is_tightened_says_so_when_it_refuses(valkey: EmbeddedServer) -> None:
    step = {"at": "50%", "context_tokens": 20}
    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, soft(step)) as running:
        await used_up_to_half(running)
        refused = await running.chat("long " * 50)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "context_length_exceeded")
        assert refused.json()["error"]["limit"] == 20
        assert refused.headers["x-kvgate-degraded"] == "four=50%;context_tokens=20"
        assert (await running.chat("short", stream=True)).status_code == 200
        await running.nothing_left()


async def test_calls_move_to_another_model_and_stay_charged_as_what_they_asked_for(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        own = {"name": "four", "dimension": "requests", "amount": 4, "every": "month", "model": "demo"}
        reads = {"name": "reads", "dimension": "kv_read_bytes", "amount": "1TB", "per": "1000000d"}
        soft({"at": "50%", "of": ["four"], "model": "small"}, budgets=(own, reads))(data)
        data["models"]["small"] = {"geometry": "qwen2.5-7b", "engine_name": "org/small"}
        data["pools"]["little"] = data["pools"]["any"] | {"models": ["small"], "phase": "any"}
        data["pools"]["little"]["replicas"] = [{"name": "two", "url": little.url}]

    async with (
        upstream(SAYS) as up,
        upstream(SAYS) as little,
        gateway({"any": {"one": up.url}}, valkey.url, change) as running,
    ):
        await used_up_to_half(running)
        before = await read_bytes(running)
        answer = await running.chat(stream=True)
        assert answer.headers["x-kvgate-degraded"] == "four=50%;model=small"
        assert (len(up.requests), len(little.requests)) == (2, 1)
        assert sent(little, 0)["model"] == "org/small"
        assert json.loads(events(answer.text)[0])["model"] == "demo"
        await running.quiet()
        assert 0 < await read_bytes(running) - before < before / 2
        assert await running.metric("kvgate_tokens_total", model="small") > 0
        assert [(await running.chat()).status_code for _ in range(2)] == [200, 429]
        await running.nothing_left()


async def test_calls_move_to_another_pool(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        soft({"at": "50%", "pool": "spare"})(data)
        data["pools"]["any"]["phase"] = "decode"
        data["pools"]["spare"]["phase"] = "prefill"

    async with house(valkey.url, {"any": ("one",), "spare": ("two",)}, change) as running:
        for _ in range(4):
            assert (await running.chat(session_id="s", max_tokens=64)).status_code == 200
            await running.quiet()
        assert await running.metric("kvgate_requests_total", pool="any") == 2
        assert await running.metric("kvgate_requests_total", pool="spare") == 2


@pytest.mark.parametrize("hardness", ["strict", "elastic"])
async def test_a_call_that_would_be_refused_passes_with_less(valkey: EmbeddedServer, hardness: str) -> None:
    tokens = {"name": "tokens", "dimension": "total_tokens", "amount": 400, "per": "1000000d", "hardness": hardness}
    usage = {"prompt_tokens": 100, "completion_tokens": 100}
    says = streams(frame("one"), frame("two", finish="stop"), frame(usage=usage), DONE)
    change = soft({"at": "40%", "max_tokens": 20}, budgets=(tokens,), max_tokens={"default": 8})
    async with upstream(says) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        await running.chat(stream=True, max_tokens=100)
        await running.quiet()
        answer = await running.chat(stream=True, max_tokens=350)
        assert answer.status_code == 200
        assert sent(up, 1)["max_tokens"] == 20
        await running.nothing_left()
        assert await running.charged() == 400
        denied = await running.chat(stream=True)
        assert denied.status_code == 429
        assert denied.headers["x-kvgate-degraded"] == "tokens=40%;max_tokens=20"
        assert await running.metric("kvgate_budget_denied_total", mode="enforce") == 1


async def test_a_refusal_is_told_only_of_steps_that_hold(valkey: EmbeddedServer) -> None:
    steps = ({"at": "50%", "of": ["lanes"], "max_tokens": 4}, {"at": "50%", "max_tokens": 4, "mode": "shadow"})
    lanes = {"name": "lanes", "dimension": "concurrent_calls", "amount": 8}
    async with house(valkey.url, change=soft(*steps, budgets=(FOUR, lanes))) as running:
        for _ in range(4):
            assert (await running.chat()).status_code == 200
        denied = await running.chat()
        assert denied.status_code == 429
        assert "x-kvgate-degraded" not in denied.headers


async def test_streams_of_a_tenant_keep_to_their_pace_together(valkey: EmbeddedServer) -> None:
    words = 10
    says = streams(*(frame("w") for _ in range(words - 1)), frame("w", finish="stop"), frame(usage=USAGE), DONE)
    async with (
        upstream(says) as up,
        gateway({"any": {"one": up.url}}, valkey.url, soft({"at": "20%", "tokens_per_second": 40})) as running,
    ):
        plain = await running.chat(stream=True)
        await running.quiet()
        before = asyncio.get_running_loop().time()
        both = await asyncio.gather(*(running.chat(stream=True) for _ in range(2)))
        seconds = asyncio.get_running_loop().time() - before
        assert seconds >= (2 * words - 1) / 40, "never faster than the pace, however fast the engine"
        for answer in both:
            assert answer.headers["x-kvgate-degraded"] == "four=20%;tokens_per_second=40"
            assert answer.text == plain.text
        await running.nothing_left()


async def test_a_client_that_leaves_a_paced_stream_ends_it(valkey: EmbeddedServer) -> None:
    says = streams(*(frame("w") for _ in range(1_000)))
    async with (
        upstream(SAYS, says) as up,
        gateway({"any": {"one": up.url}}, valkey.url, soft({"at": "20%", "tokens_per_second": 5})) as running,
    ):
        await running.chat(stream=True)
        await running.quiet()
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"data: ")
        writer.close()
        await running.nothing_left()
        assert await running.metric("kvgate_requests_total", outcome="client_gone") == 1


async def test_a_limit_that_is_nearly_full_and_one_in_shadow_that_is_are_counted(valkey: EmbeddedServer) -> None:
    trial = {"name": "trial", "dimension": "requests", "amount": 2, "per": "1000000d", "mode": "shadow"}
    lanes = {"name": "lanes", "dimension": "concurrent_calls", "amount": 1, "mode": "shadow"}
    async with house(valkey.url, change=soft({"at": "90%", "max_tokens": 4}, budgets=(FOUR, trial, lanes))) as running:
        for _ in range(4):
            assert (await running.chat()).status_code == 200
            await running.quiet()
        assert await running.metric("kvgate_budget_near_total", limit="four", mode="enforce") == 1
        assert await running.metric("kvgate_budget_denied_total", limit="trial", mode="shadow") == 2
        assert await running.metric("kvgate_budget_denied_total", limit="lanes", mode="shadow") == 0
        await asyncio.gather(*(running.chat() for _ in range(3)))


async def test_a_paced_stream_holds_the_engine_back_and_not_memory(valkey: EmbeddedServer) -> None:
    sent_bytes = 0

    async def floods(peer: Peer) -> None:
        nonlocal sent_bytes
        peer.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16_384)
        await peer.send(CHUNKED)
        piece = chunk(frame("w" * 500))
        while sent_bytes < 16_000_000 and not peer.gone.is_set():
            await peer.send(piece)
            sent_bytes += len(piece)

    async with (
        upstream(SAYS, floods) as up,
        gateway({"any": {"one": up.url}}, valkey.url, soft({"at": "20%", "tokens_per_second": 20})) as running,
    ):
        await running.chat(stream=True)
        await running.quiet()
        reader, writer = await running.send(stream=True)
        for _ in range(10):
            await reader.readuntil(b"data: ")
        assert sent_bytes < 2_000_000
        writer.close()
        await running.nothing_left()
