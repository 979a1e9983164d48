"""Engines that refuse the `stream_options` that we add made every stream of their pool a 400 elsewhere.

A stream is sent once more as its client wrote it, by the same replica; its next ones at once, for a time.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import FAST, Change, House, events, gateway, house
from tests.upstream import DONE, Received, Script, Upstream, answers, frame, reply, streams, upstream

UNEXPECTED = reply(422, b"""{"detail":"Unexpected fields in the request: {'stream_options'}"}""")
REFUSALS = {
    "transformers serve": UNEXPECTED,
    "pydantic": reply(
        422, b'{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs"}]}'
    ),
    "by its parameter": reply(400, b'{"error":{"message":"Invalid.","type":"x","param":"stream_options","code":400}}'),
    "an argument": reply(
        400, b'{"error":{"message":"Unrecognized request argument supplied: stream_options","param":null}}'
    ),
    "unnamed": reply(400, b'{"error":{"message":"Additional properties are not allowed"}}'),
}
FRAMES = (frame(""), *(frame("w") for _ in range(6)), frame("", finish="stop"), DONE)
PLAIN = streams(*FRAMES)
OTHER = reply(400, b'{"error":{"message":"temperature must be non-negative","param":"temperature","code":400}}')


def asks_usage(request: Received) -> bool:
    return b'"stream_options"' in request.body


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_a_stream_whose_added_options_are_refused_is_sent_without_them_and_counted_here(
    valkey: EmbeddedServer, refusal: bytes
) -> None:
    async with (
        upstream(answers(refusal), PLAIN) as up,
        gateway({"any": {"one": up.url}}, valkey.url) as running,
    ):
        answer = await running.chat(stream=True)
        assert (answer.status_code, answer.content) == (200, b"".join(FRAMES))
        assert [asks_usage(each) for each in up.requests] == [True, False]
        first, second = (each.body for each in up.requests)
        assert second == first.replace(b'"stream_options":{"include_usage":true},', b""), "nothing else is touched"
        await running.nothing_left()
        prompt = await running.metric("kvgate_tokens_total", kind="prefill")
        assert await running.metric("kvgate_tokens_total", kind="decode") == 7
        assert await running.charged() == prompt + 7
        assert await running.metric("kvgate_requests_estimated_total", tenant="acme") == 1


async def test_its_next_streams_go_without_at_once_and_the_replica_is_not_blamed(valkey: EmbeddedServer) -> None:
    async with (
        upstream(answers(UNEXPECTED), PLAIN) as up,
        gateway({"any": {"one": up.url}}, valkey.url) as running,
    ):
        for _ in range(4):
            assert (await running.chat(stream=True)).status_code == 200
        assert [asks_usage(each) for each in up.requests] == [True, False, False, False, False]
        assert await running.metric("kvgate_engine_usage_refused_total", pool="any") == 1
        assert await running.metric("kvgate_attempts_total", outcome="success") == 4
        assert await running.metric("kvgate_attempts_total") == 4, "one attempt a call, none failed"


async def test_streams_at_once_are_each_refused_once(valkey: EmbeddedServer) -> None:
    async with house(
        valkey.url, {"any": ("one",)}, engine=FAST.model_copy(update={"refuse_stream_options": True})
    ) as running:
        found = await asyncio.gather(*(running.chat(stream=True) for _ in range(6)))
        assert {answer.status_code for answer in found} == {200}
        assert all(events(answer.text)[-1] == "[DONE]" for answer in found)
        assert 1 <= await running.metric("kvgate_engine_usage_refused_total", pool="any") <= 6
        await running.nothing_left()


async def test_one_attempt_is_enough_for_both(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        data["routing"]["attempts"] = 1

    async with (
        upstream(answers(UNEXPECTED), PLAIN) as up,
        gateway({"any": {"one": up.url}}, valkey.url, change) as running,
    ):
        assert (await running.chat(stream=True)).status_code == 200
        assert len(up.requests) == 2


@pytest.mark.parametrize(
    "options", [{"include_usage": True}, {"include_usage": False}, {"include_obfuscation": True}, None]
)
async def test_a_client_that_sent_the_field_itself_hears_what_the_engine_says_of_it(
    valkey: EmbeddedServer, options: object
) -> None:
    async with (
        upstream(answers(UNEXPECTED)) as up,
        gateway({"any": {"one": up.url}}, valkey.url) as running,
    ):
        answer = await running.chat(stream=True, stream_options=options)
        assert answer.status_code == 422
        assert "stream_options" in answer.text
        assert len(up.requests) == 1
        assert await running.metric("kvgate_engine_usage_refused_total") == 0


@pytest.mark.parametrize("script", [answers(OTHER), answers(reply(401, b'{"error":"stream_options"}'))])
async def test_what_refuses_something_else_is_not_asked_twice(valkey: EmbeddedServer, script: Script) -> None:
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        assert (await running.chat(stream=True)).status_code in (400, 502)
        assert [asks_usage(each) for each in up.requests] == [True] * len(up.requests)


async def test_a_refusal_that_only_repeats_a_prompt_teaches_nothing(valkey: EmbeddedServer) -> None:
    """The second answer is the client's: it is about what the client wrote. Usage is asked for as before."""
    repeats = reply(400, b'{"error":{"message":"bad input: what are stream_options?","param":"messages"}}')
    async with (
        upstream(answers(repeats), answers(OTHER), PLAIN) as up,
        gateway({"any": {"one": up.url}}, valkey.url) as running,
    ):
        refused = await running.chat("what are stream_options?", stream=True)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "temperature")
        assert (await running.chat(stream=True)).status_code == 200
        assert [b'"include_usage"' in each.body for each in up.requests] == [True, False, True]
        assert await running.metric("kvgate_engine_usage_refused_total") == 0


async def test_what_one_replica_refuses_the_other_is_still_asked(valkey: EmbeddedServer) -> None:
    usage = frame(usage={"prompt_tokens": 3, "completion_tokens": 6})
    async with (
        upstream(answers(UNEXPECTED), PLAIN) as old,
        upstream(streams(*FRAMES[:-1], usage, DONE)) as new,
        gateway({"any": {"old": old.url, "new": new.url}}, valkey.url) as running,
    ):
        for number in range(8):
            assert (await running.chat(f"call {number}", stream=True)).status_code == 200
        assert [asks_usage(each) for each in old.requests] == [True, *[False] * (len(old.requests) - 1)]
        assert [asks_usage(each) for each in new.requests] == [True] * len(new.requests)
        assert len(old.requests) > 2 and len(new.requests) > 2
        await running.nothing_left()
        assert await running.metric("kvgate_requests_estimated_total") == len(old.requests) - 1


async def test_a_replica_that_was_away_is_asked_anew(valkey: EmbeddedServer) -> None:
    """It comes back as another version of its engine, perhaps."""

    def probed(data: dict[str, Any]) -> None:
        data["routing"]["probe_interval"] = "20ms"

    async with gateway_of_old_and_new(valkey, probed) as (running, old, port):
        assert (await running.chat(stream=True)).status_code == 200
        assert [asks_usage(each) for each in old.requests] == [True, False]
        await old.stop()
        while await running.metric("kvgate_replica_up"):
            pass
        async with upstream(PLAIN, port=port) as new:
            while not await running.metric("kvgate_replica_up"):
                pass
            assert (await running.chat(stream=True)).status_code == 200
            assert [asks_usage(each) for each in new.requests] == [True]


@asynccontextmanager
async def gateway_of_old_and_new(valkey: EmbeddedServer, change: Change) -> AsyncIterator[tuple[House, Upstream, int]]:
    """A gateway with one replica, which can be stopped before the end, and its port."""
    async with (
        upstream(answers(UNEXPECTED), PLAIN) as old,
        gateway({"any": {"one": old.url}}, valkey.url, change) as at,
    ):
        yield at, old, int(old.url.rpartition(":")[2])


async def test_usage_on_every_frame_without_usage_at_the_end_is_no_usage_at_all(valkey: EmbeddedServer) -> None:
    """vLLM takes it so: the usage that we ask for must not wake what the client asked for in vain."""
    async with house(valkey.url, {"any": ("one",)}) as running:
        answer = await running.chat(stream=True, stream_options={"continuous_usage_stats": True})
        assert events(answer.text)[-1] == "[DONE]"
        assert '"usage"' not in answer.text
        await running.nothing_left()
        assert await running.metric("kvgate_tokens_total", kind="decode") == 8
