"""Ways in which routers in front of engines went wrong, each by its report in public."""

import asyncio
import time
from contextlib import AsyncExitStack
from email.utils import formatdate
from typing import Any

import pytest

from gateway.attempt import LONGEST_REST_SECONDS
from gateway.clock import monotonic
from gateway.embedded import EmbeddedServer
from loadtest.engine import Settings
from tests.house import gateway, house, until
from tests.upstream import CHUNKED, DONE, Peer, answers, chunk, frame, reply, stalls_after, streams, upstream

SAYS = streams(frame("one"), frame("two", finish="stop"), DONE)
ERROR = b'{"error":{"message":"no","type":"x","code":400}}'


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_before_any_header_ends_the_engine_s_work(
    valkey: EmbeddedServer, stream: bool
) -> None:
    async with upstream(stalls_after()) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        _, writer = await running.send(stream=stream)
        await up.arrived.wait()
        writer.close()
        await asyncio.wait_for(up.peers[0].gone.wait(), 20)
        await running.nothing_left()


async def test_a_replica_that_is_dead_when_the_gateway_starts_is_found_and_not_used(
    valkey: EmbeddedServer, unused_tcp_port: int
) -> None:
    def change(data: dict[str, Any]) -> None:
        data["routing"]["probe_interval"] = "10ms"

    urls = {"any": {"dead": f"http://127.0.0.1:{unused_tcp_port}", "alive": ""}}
    async with upstream(SAYS) as up:
        urls["any"]["alive"] = up.url
        async with gateway(urls, valkey.url, change) as running:
            while await running.metric("kvgate_replica_up", replica="dead"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for _ in range(6):
                assert (await running.chat(stream=True)).status_code == 200
            assert await running.metric("kvgate_attempts_total", replica="dead") == 0


@pytest.mark.parametrize("status", [400, 404, 413, 422])
async def test_clients_mistakes_are_held_against_no_replica(valkey: EmbeddedServer, status: int) -> None:
    async with (
        upstream(answers(reply(status, ERROR))) as up,
        gateway({"any": {"one": up.url}}, valkey.url) as running,
    ):
        for _ in range(30):
            assert (await running.chat()).status_code == status
        assert await running.metric("kvgate_replica_up", replica="one") == 1
        assert await running.metric("kvgate_attempts_total", replica="one", outcome="neutral") == 30
        assert len(up.requests) == 30, "nor tried again"


@pytest.mark.parametrize("status", [401, 403])
async def test_an_engine_that_rejects_our_key_is_not_taken_out_by_it(valkey: EmbeddedServer, status: int) -> None:
    """The call may be the reason, as where something in front of the engines looks at prompts: no fleet goes for it."""
    async with (
        upstream(answers(reply(status, b'{"error":"Unauthorized"}'))) as one,
        upstream(answers(reply(status, b'{"error":"Unauthorized"}'))) as two,
        gateway({"any": {"one": one.url, "two": two.url}}, valkey.url) as running,
    ):
        for number in range(20):
            answer = await running.chat(f"call {number}")
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_rejected")
        assert await running.metric("kvgate_replica_up") == 2
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 0
        assert len(one.requests) > 5 < len(two.requests), "the other one may take it"
        await running.nothing_left()
        assert await running.charged() == 0


@pytest.mark.parametrize("form", ["seconds", "a date"])
async def test_a_503_that_says_when_to_come_back_is_no_failure_whoever_says_it(
    valkey: EmbeddedServer, form: str
) -> None:
    wait = b"700" if form == "seconds" else formatdate(time.time() + 700, usegmt=True).encode()
    page = reply(503, b"<html>Come back later</html>", b"retry-after: " + wait, media=b"text/html")
    async with upstream(answers(page)) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        answer = await running.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_busy")
        assert (700 if form == "seconds" else 100) <= int(answer.headers["retry-after"]) <= 700
        assert await running.metric("kvgate_attempts_total", outcome="neutral") == 1
        assert await running.metric("kvgate_attempts_total") == 1
        (state,) = running.gateway.snapshot.pools["any"].pool.states()
        assert state.resting, "it is left alone for that long, up to half a minute"
        seat = running.gateway.snapshot.pools["any"].pool._seats["one"]
        assert 0 < seat.resting_until - monotonic() <= LONGEST_REST_SECONDS
        await running.nothing_left()


async def test_an_engine_whose_queue_is_full_is_left_alone_for_a_moment_and_not_taken_out(
    valkey: EmbeddedServer,
) -> None:
    full = answers(reply(503, b'{"error":{"message":"The engine is currently busy","code":503}}'))
    async with upstream(*[full] * 12, SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        while (answer := await running.chat(stream=True)).status_code != 200:
            assert answer.status_code == 503
            assert await running.metric("kvgate_replica_up", replica="one") == 1
        await running.nothing_left()


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/completions", {"prompt": "Hello", "stream": True}),
        ("/embeddings", {"input": "Hello"}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], "stream": True}),
        ("/chat/completions", {"messages": [{"role": "user", "content": "Hello"}]}),
    ],
)
async def test_a_call_of_every_path_counts_as_load_until_it_ends(
    valkey: EmbeddedServer, path: str, body: dict[str, Any]
) -> None:
    go_on = asyncio.Event()

    async def script(peer: Peer) -> None:
        await go_on.wait()
        await peer.send(reply(200, b'{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":0}}'))

    async with (
        upstream(script) as one,
        upstream(script) as two,
        gateway({"any": {"one": one.url, "two": two.url}}, valkey.url) as running,
    ):
        key = {"authorization": "Bearer sk-test-acme"}
        calls = [
            asyncio.create_task(running.http.post(path, json=body | {"model": "demo"}, headers=key)) for _ in range(8)
        ]
        await until(lambda: len(one.requests) + len(two.requests) == 8)
        assert (len(one.requests), len(two.requests)) == (4, 4), "own calls count at once, not by the next scrape"
        assert await running.metric("kvgate_in_flight") == 8
        go_on.set()
        await asyncio.gather(*calls)
        await running.nothing_left()


async def test_an_idle_pool_does_not_send_everything_to_its_first_replica(valkey: EmbeddedServer) -> None:
    async with (
        upstream(SAYS) as one,
        upstream(SAYS) as two,
        upstream(SAYS) as three,
        gateway({"any": {"one": one.url, "two": two.url, "three": three.url}}, valkey.url) as running,
    ):
        for at in range(9):
            await running.chat(f"Question {at}", stream=True)
            await running.quiet()
        assert [len(each.requests) for each in (one, two, three)] == [3, 3, 3]


async def test_a_kept_connection_that_the_engine_closed_is_no_failed_attempt(valkey: EmbeddedServer) -> None:
    async def says_and_closes(peer: Peer) -> None:
        await SAYS(peer)
        peer.writer.close()

    async with upstream(says_and_closes) as up, gateway({"any": {"one": up.url}}, valkey.url) as running:
        for _ in range(10):
            assert (await running.chat(stream=True)).status_code == 200
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 0


async def test_nothing_in_flight_is_left_by_a_call_that_ends_early(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["context"] = {"limit_tokens": 20}

    async with upstream(SAYS) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as running:
        assert (await running.chat("long " * 100)).status_code == 400
        assert (await running.chat(model="none")).status_code == 404
        assert (await running.chat(n=0)).status_code == 400
        await running.nothing_left()
        assert await running.metric("kvgate_in_flight") == 0


async def test_calls_of_others_at_an_engine_send_ours_elsewhere(valkey: EmbeddedServer) -> None:
    """What this gateway did not send it knows from the engine's own numbers."""

    def change(data: dict[str, Any]) -> None:
        data["routing"]["probe_interval"] = "20ms"

    slow = Settings(served_model_name="demo", speed=1, max_model_len=32_768)
    async with house(valkey.url, change=change, engine=slow) as running:
        at_one = f"{running.engines['one'].url}/v1/chat/completions"
        body = {"model": "demo", "messages": [{"role": "user", "content": "x"}], "max_tokens": 30_000, "stream": True}
        body["ignore_eos"] = True
        async with running.http.stream("POST", at_one, json=body) as theirs:
            assert theirs.status_code == 200
            while not await running.metric("kvgate_replica_work_seconds", replica="one"):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            for at in range(6):
                assert (await running.chat(f"Question {at}")).status_code == 200
            assert await running.metric("kvgate_attempts_total", replica="two") == 6


async def test_an_engine_that_answers_but_no_longer_tells_how_it_is_comes_last(valkey: EmbeddedServer) -> None:
    def change(data: dict[str, Any]) -> None:
        data["routing"]["probe_interval"] = "10ms"

    async with house(valkey.url, change=change) as running:
        served = running.gateway.snapshot.pools["any"]
        await until(lambda: served.pool.load("one") is not None)
        get = served.get

        async def silent(replica: str, path: str) -> tuple[int, bytes]:
            return (500, b"") if (replica, path) == ("one", "/metrics") else await get(replica, path)

        served.get = silent  # type: ignore[method-assign]
        await until(lambda: served.pool.states()[0].stale)
        assert await running.metric("kvgate_replica_fresh", replica="one") == 0
        assert await running.metric("kvgate_replica_up", replica="one") == 1
        for at in range(4):
            assert (await running.chat(f"Question {at}")).status_code == 200
        assert await running.metric("kvgate_attempts_total", replica="two") == 4
        assert await running.metric("kvgate_replica_work_seconds", replica="one") == 0


async def test_one_budget_of_attempts_for_all_pools_of_a_model(valkey: EmbeddedServer) -> None:
    """A chain of fallbacks began its retries anew at each link: 75 calls in 14 seconds elsewhere."""

    def change(data: dict[str, Any]) -> None:
        data["routing"]["attempts"] = 3
        for name in ("any", "prefill", "decode"):
            data["pools"][name]["phase"] = name

    async with AsyncExitStack() as ends:
        ups = [await ends.enter_async_context(upstream(answers(reply(500, b"{}")))) for _ in range(6)]
        urls: dict[str, dict[str, str]] = {name: {} for name in ("any", "prefill", "decode")}
        for number, up in enumerate(ups):
            urls[("any", "prefill", "decode")[number % 3]][f"engine-{number}"] = up.url
        running = await ends.enter_async_context(gateway(urls, valkey.url, change))
        assert (await running.chat()).status_code == 502
        assert sum(len(each.requests) for each in ups) == 3, "of the six there are"
        await running.nothing_left()


async def test_a_stream_is_not_played_again_after_its_first_byte(valkey: EmbeddedServer) -> None:
    async def breaks(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("one")))
        peer.reset()

    async with (
        upstream(breaks) as one,
        upstream(breaks) as two,
        gateway({"any": {"one": one.url, "two": two.url}}, valkey.url) as running,
    ):
        answer = await running.chat(stream=True)
        assert '"error"' in answer.text
        assert len(one.requests) + len(two.requests) == 1
        await running.nothing_left()
