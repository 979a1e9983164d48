"""HTTP as clients speak it, against the whole gateway: kept connections, pipelining, old clients, odd bodies."""

import asyncio
import json
from collections.abc import AsyncIterator

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from tests.house import KEY, House, events, house

HELLO = json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2}).encode()
STREAM = HELLO.replace(b'"max_tokens"', b'"stream": true, "max_tokens"')


@pytest.fixture
async def running(valkey: EmbeddedServer) -> AsyncIterator[House]:
    async with house(valkey.url, {"any": ["one"]}, body_limit_bytes=100_000) as started:
        yield started
        await started.nothing_left()


def post(body: bytes, *lines: str, version: str = "1.1", key: str = KEY) -> bytes:
    must = ["host: x", "content-type: application/json", f"authorization: Bearer {key}"]
    length = [] if any("transfer-encoding" in line for line in lines) else [f"content-length: {len(body)}"]
    head = [f"POST /v1/chat/completions HTTP/{version}", *must, *length, *lines, "", ""]
    return "\r\n".join(head).encode() + body


async def said(running: House, data: bytes) -> bytes:
    """Everything that comes back until the gateway closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", running.gateway.port)
    writer.write(data)
    try:
        return await reader.read()
    finally:
        writer.close()


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


async def test_one_connection_serves_many_requests_also_after_refusals(running: House) -> None:
    data = post(HELLO) + post(HELLO, key="sk-wrong") + post(STREAM) + post(b"{") + post(HELLO, "connection: close")
    assert statuses(await said(running, data)) == [200, 401, 200, 400, 200]


async def test_http_1_0_gets_its_stream_plain_and_the_connection_closed(running: House) -> None:
    answer = await said(running, post(STREAM, version="1.0"))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b"transfer-encoding" not in head.lower()
    assert events(body)[-1] == "[DONE]"


async def test_a_chunked_body_is_a_body(running: House) -> None:
    chunked = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (10, HELLO[:10], len(HELLO) - 10, HELLO[10:])
    answer = await said(running, post(chunked, "transfer-encoding: chunked", "connection: close"))
    assert statuses(answer) == [200]


async def test_head_and_get_of_the_probes(running: House) -> None:
    url = f"http://127.0.0.1:{running.gateway.port}"
    for path, text in (("/healthz", "ok\n"), ("/readyz", "ready\n")):
        assert (await running.http.get(url + path)).text == text
        assert (await running.http.head(url + path)).status_code == 200


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"x" * 100_001, {}, 413),
        (HELLO, {"content-type": "text/plain"}, 400),
        (HELLO, {"content-encoding": "gzip"}, 400),
        (b"", {}, 400),
        (b"[]", {}, 400),
        (b"null", {}, 400),
        (b'{"model":"demo"}', {}, 400),
        (b'{"model":"demo","messages":[]}', {}, 400),
        (b'{"model":"demo","messages":"hello"}', {}, 400),
        (b'{"model":7,"messages":[{}]}', {}, 400),
        (b'{"model":"demo","messages":[{}],"n":0}', {}, 400),
        (b'{"model":"demo","messages":[{}],"max_tokens":-1}', {}, 400),
        (b"[" * 50_000, {}, 400),
        (b'{"model":"demo","messages":[' + b"[" * 20_000 + b"]" * 20_000 + b"]}", {}, 400),
        (b'{"model":"\xff\xfe","messages":[{}]}', {}, 400),
        (HELLO + b"trailing", {}, 400),
    ],
)
async def test_what_cannot_be_served_is_refused_in_the_api_s_shape(
    running: House, body: bytes, headers: dict[str, str], status: int
) -> None:
    usual = {"authorization": f"Bearer {KEY}", "content-type": "application/json"}
    answer = await running.http.post("/chat/completions", content=body, headers=usual | headers)
    assert answer.status_code == status
    assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}
    assert "x-request-id" in answer.headers
    assert await running.metric("kvgate_attempts_total") == 0
    assert await running.metric("kvgate_task_failures_total") == 0


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v2/chat/completions", "/v1/chat/completions/x", "/v1/files"])
async def test_paths_that_are_not_there(running: House, path: str) -> None:
    url = f"http://127.0.0.1:{running.gateway.port}{path}"
    answer = await running.http.post(url, content=HELLO, headers={"authorization": f"Bearer {KEY}"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")


async def test_methods_that_are_not_there(running: House) -> None:
    url = f"http://127.0.0.1:{running.gateway.port}"
    for method, path in (("GET", "/v1/chat/completions"), ("DELETE", "/v1/models/demo"), ("PUT", "/v1/embeddings")):
        answer = await running.http.request(method, url + path, headers={"authorization": f"Bearer {KEY}"})
        assert answer.status_code == 405
        assert answer.headers["allow"]


async def test_odd_messages_are_the_engine_s_affair(running: House) -> None:
    """Lone surrogates, unknown roles, null content, part lists: nothing of it is a failure of ours."""
    odd: list[object] = [
        {"role": "user", "content": "\ud83d broken"},
        {"role": "alien", "content": "hi"},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
        {"role": "assistant", "content": "", "tool_calls": []},
    ]
    for message in odd:
        body = json.dumps({"model": "demo", "messages": [message, {"role": "user", "content": "x"}], "max_tokens": 1})
        answer = await running.http.post(
            "/chat/completions",
            content=body.encode(),
            headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
        )
        assert answer.status_code in (200, 400), message
    assert await running.metric("kvgate_task_failures_total") == 0


async def test_two_turns_of_one_session_at_once_are_both_served(running: House) -> None:
    """Neither loses the other: the next turn of each is known."""
    first: list[dict[str, str]] = [{"role": "user", "content": "Where do we begin?"}]

    async def turn(messages: list[dict[str, str]]) -> httpx.Response:
        body = {"model": "demo", "messages": messages, "max_tokens": 2}
        headers = {"authorization": f"Bearer {KEY}", "x-session-id": "chat"}
        return await running.http.post("/chat/completions", json=body, headers=headers)

    assert (await turn(first)).status_code == 200
    ways = [[*first, {"role": "assistant", "content": "Here."}, {"role": "user", "content": way}] for way in "abc"]
    assert {answer.status_code for answer in await asyncio.gather(*map(turn, ways))} == {200}
    await running.quiet()
    before = await running.metric("kvgate_sessions_total", found="known")
    for way in ways:
        onward = [*way, {"role": "assistant", "content": "And?"}, {"role": "user", "content": "On."}]
        assert (await turn(onward)).status_code == 200
        await running.quiet()
    assert await running.metric("kvgate_sessions_total", found="known") == before + 3
