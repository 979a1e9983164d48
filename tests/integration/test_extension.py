"""Streams that go on for longer than was reserved: more is asked for, and where there is no more they end or owe."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest

from bench import kept
from budgets.script import Argument, Script
from gateway.embedded import EmbeddedServer
from gateway.store import StoreUnavailable
from tests.fault.store_proxy import store_proxy
from tests.house import Change, House, events, gateway, until
from tests.upstream import CHUNKED, DONE, END, Peer, chunk, frame, reply, upstream

TOKENS: Mapping[str, Any] = {"name": "tokens", "dimension": "total_tokens", "per": "1000000d"}
Asked = asyncio.Future[object]
EXPECTED = 8
"""What is reserved for a reply at first, by its max_tokens, which the scripted engines do not keep to."""


def budget(amount: int, **fields: object) -> Change:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["budgets"] = [{**TOKENS, "amount": amount, **fields}]

    return change


def says(words: int, then: Callable[[], Awaitable[None]] | None = None) -> Callable[[Peer], Awaitable[None]]:
    """Streams so many words, waits for what `then` waits for, and ends with its usage."""

    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("")))
        for _ in range(words):
            await peer.send(chunk(frame("w")))
        if then is not None:
            await then()
        usage = {"prompt_tokens": 5, "completion_tokens": words}
        await peer.send(chunk(frame("", finish="stop")), chunk(frame(usage=usage)), chunk(DONE), END)

    return script


async def stored(running: House) -> int:
    """Micro-units taken by the lease that runs."""
    return sum(next(iter(lease.took.values())) for lease in await kept.leases(running.gateway.store)) // 10**6


async def test_a_stream_takes_more_while_it_goes_on_and_is_charged_what_it_used(valkey: EmbeddedServer) -> None:
    grown = asyncio.Event()

    async def waits() -> None:
        await grown.wait()

    async with (
        upstream(says(30, waits)) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budget(900)) as running,
    ):
        reader, writer = await running.send(stream=True)
        await reader.readuntil(b"w")
        while await stored(running) < EXPECTED + 64:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.005)
        grown.set()
        await reader.readuntil(b"[DONE]")
        writer.close()
        await running.nothing_left()
        assert await running.charged() == 35


async def test_a_stream_without_more_goes_on_into_debt(valkey: EmbeddedServer) -> None:
    async with upstream(says(60)) as up, gateway({"any": {"one": up.url}}, valkey.url, budget(40)) as running:
        answer = await running.chat(stream=True)
        assert events(answer.text)[-1] == "[DONE]"
        await running.nothing_left()
        assert await running.charged() == 65
        assert (await running.chat()).status_code == 429


async def test_a_debt_in_one_budget_does_not_hide_the_end_of_another(valkey: EmbeddedServer) -> None:
    """Where one lets the stream go on and refuses what is asked, the other is asked all the same, for all there is."""

    def change(data: dict[str, Any]) -> None:
        hourly = {"name": "hourly", "dimension": "decode_tokens", "amount": 200, "every": "month", "on_exceed": "stop"}
        data["tiers"]["standard"]["budgets"] = [{**TOKENS, "amount": 40}, hourly]

    async def goes_on(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("")))
        while not peer.gone.is_set() and len(sent) < 3_000:
            sent.append(1)
            await peer.send(chunk(frame("w")))
            await asyncio.sleep(0.001)
        await peer.send(chunk(frame("", finish="stop")), chunk(DONE), END)

    sent: list[int] = []
    async with upstream(goes_on) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        answer = await running.chat(stream=True)
        assert '"stopped_by":"hourly"' in answer.text
        await running.nothing_left()
        assert await running.charged() > 100, "in debt"


@pytest.mark.parametrize("wants_usage", [False, True])
async def test_a_stream_without_more_ends_as_if_it_had_come_to_its_length(
    valkey: EmbeddedServer, wants_usage: bool
) -> None:
    async def waits_for_the_end() -> None:
        await up.peers[0].gone.wait()

    async with (
        upstream(says(30, waits_for_the_end)) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budget(40, on_exceed="stop")) as running,
    ):
        answer = await running.chat(stream=True, stream_options={"include_usage": wants_usage})
        *_, end = frames = [json.loads(event) for event in events(answer.text)[:-1]]
        assert events(answer.text)[-1] == "[DONE]"
        if wants_usage:
            assert end["choices"] == []
            assert end["usage"]["completion_tokens"] == 30
            end = frames[-2]
        assert end["choices"] == [{"index": 0, "delta": {}, "finish_reason": "length"}]
        assert (end["object"], end["model"]) == ("chat.completion.chunk", "demo")
        assert end["kvgate"] == {"stopped_by": "tokens", "dimension": "total_tokens"}
        assert await running.metric("kvgate_budget_stopped_total", tenant="acme", limit="tokens") == 1
        await running.nothing_left()
        assert await running.metric("kvgate_requests_total", outcome="ok") == 1
        assert await running.metric("kvgate_attempts_total", outcome="neutral") == 1
        prompt = await running.metric("kvgate_tokens_total", kind="prefill")
        assert await running.charged() == prompt + 30


async def test_a_stream_goes_on_when_the_store_is_away_and_is_charged_when_it_is_back(valkey: EmbeddedServer) -> None:
    async def back() -> None:
        proxy.back()
        await until(lambda: running.gateway.store.available)

    async def words(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("")), chunk(frame("w")))
        proxy.away()
        await until(lambda: not running.gateway.store.available)
        await peer.send(*(chunk(frame("w")) for _ in range(30)))
        await back()
        usage = {"prompt_tokens": 5, "completion_tokens": 31}
        await peer.send(chunk(frame("", finish="stop")), chunk(frame(usage=usage)), chunk(DONE), END)

    async with (
        store_proxy(valkey.url) as proxy,
        upstream(words) as up,
        gateway({"any": {"one": up.url}}, proxy.url, budget(900)) as running,
    ):
        answer = await running.chat(stream=True)
        assert events(answer.text)[-1] == "[DONE]"
        await running.nothing_left()
        assert await running.charged() == 36


async def test_what_an_answer_that_was_lost_had_taken_is_charged_once(
    valkey: EmbeddedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = asyncio.Event()

    async def waits() -> None:
        await lost.wait()

    async with (
        upstream(says(30, waits)) as up,
        gateway({"any": {"one": up.url}}, valkey.url, budget(900)) as running,
    ):
        run = running.gateway.store.run

        def losing(
            script: Script, keys: Sequence[str], args: Sequence[Argument], seconds: float | None = None
        ) -> Asked:
            """The store does what it is asked; what it says of one script never comes."""
            asked = run(script, keys, args, seconds)
            if script.name != "extend":
                return asked
            answer: Asked = asyncio.get_running_loop().create_future()

            def lose(_: Asked) -> None:
                answer.set_exception(StoreUnavailable("lost"))
                lost.set()

            asked.add_done_callback(lose)
            return answer

        monkeypatch.setattr(running.gateway.store, "run", losing)
        answer = await running.chat(stream=True)
        assert events(answer.text)[-1] == "[DONE]"
        await running.nothing_left()
        assert await running.charged() == 35
        assert await running.gateway.store.command("XLEN", "kvgate:1:{acme}:usage:acme") == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_prompt_that_is_counted_longer_than_expected_takes_the_difference(
    valkey: EmbeddedServer, stream: bool
) -> None:
    """Counted it is only near a limit of the context; the bytes had made it look short."""
    go_on = asyncio.Event()

    async def waits(peer: Peer) -> None:
        await go_on.wait()
        if stream:
            usage = {"prompt_tokens": 450, "completion_tokens": 2}
            await peer.send(CHUNKED, chunk(frame("w", finish="stop")), chunk(frame(usage=usage)), chunk(DONE), END)
        else:
            await peer.send(reply(200, b'{"choices":[],"usage":{"prompt_tokens":450,"completion_tokens":2}}'))

    def change(data: dict[str, Any]) -> None:
        budget(9_000)(data)
        data["tiers"]["standard"]["context"] = {"limit_tokens": 600}

    async with upstream(waits) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        asked = asyncio.create_task(running.chat("a;" * 440, stream=stream))
        await up.arrived.wait()
        while await stored(running) < 440 + EXPECTED:  # noqa: ASYNC110 - the store tells nobody
            await asyncio.sleep(0.005)
        go_on.set()
        assert (await asked).status_code == 200
        await running.nothing_left()
        assert await running.charged() == 452


async def test_several_tokens_in_a_frame_count_where_the_engine_tells_of_them(valkey: EmbeddedServer) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("")))
        for at in range(1, 4):
            counted = {"prompt_tokens": 5, "completion_tokens": at * EXPECTED}
            told = json.loads(frame("w" * EXPECTED).removeprefix(b"data: ")) | {"usage": counted}
            await peer.send(chunk(b"data: " + json.dumps(told).encode() + b"\n\n"))
        await peer.gone.wait()

    change = budget(40, on_exceed="stop")
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        answer = await running.chat(stream=True)
        *_, end, done = events(answer.text)
        assert (json.loads(end)["choices"][0]["finish_reason"], done) == ("length", "[DONE]")
        await running.nothing_left()
