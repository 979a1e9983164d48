"""An engine whose port is closed: another one answers; with no other, the client is told."""

import httpx

from gateway.embedded import EmbeddedServer
from tests.house import gateway, house
from tests.upstream import answers, reply, upstream

ANSWER = b'{"model":"demo","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'


async def test_the_call_goes_elsewhere_unseen(valkey: EmbeddedServer, unused_tcp_port: int) -> None:
    closed = f"http://127.0.0.1:{unused_tcp_port}"
    async with (
        upstream(answers(reply(200, ANSWER))) as up,
        gateway({"any": {"closed": closed, "open": up.url}}, valkey.url) as house,
    ):
        replies = [await house.chat(f"call {number}") for number in range(4)]
        assert [answer.status_code for answer in replies] == [200] * 4
        assert all(answer.content == ANSWER for answer in replies)
        await house.nothing_left()
        assert await house.charged() == 4 * 5
        assert await house.metric("kvgate_attempts_total", replica="open", outcome="success") == 4
        assert await house.metric("kvgate_attempts_total", replica="closed", outcome="failure") >= 1
        assert await house.metric("kvgate_requests_total", outcome="ok") == 4


async def test_with_no_other_the_client_is_told_and_pays_nothing(valkey: EmbeddedServer, unused_tcp_port: int) -> None:
    async with gateway({"any": {"closed": f"http://127.0.0.1:{unused_tcp_port}"}}, valkey.url) as house:
        for stream in (False, True):
            told(await house.chat(stream=stream), 502, "engine_unreachable")
        await house.nothing_left()
        assert await house.charged() == 0
        assert await house.metric("kvgate_requests_total", outcome="engine_failed") == 2


async def test_an_emulated_engine_that_closes_before_any_header(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        told(await running.chat(kvgate_fault="refuse"), 502, "engine_unreachable")
        await running.nothing_left()
        assert await running.charged() == 0
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 2


def told(answer: httpx.Response, status: int, code: str) -> None:
    """An error in the API's own shape that names no engine."""
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers["content-type"] == "application/json"
    assert "127.0.0.1" not in answer.text
