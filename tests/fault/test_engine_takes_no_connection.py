"""An engine whose machine does not answer: the wait for a connection ends in its own time, another engine is asked."""

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import gateway
from tests.upstream import answers, reply, upstream

ANSWER = b'{"model":"demo","choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}'


def impatient(data: dict[str, Any]) -> None:
    data["routing"] |= {"connect_timeout": "100ms", "affinity_slack": "0s"}


@pytest.fixture
async def full() -> AsyncIterator[str]:
    """The URL of a port whose queue of connections is full: the system drops whatever else comes."""
    listener = socket.create_server(("127.0.0.1", 0), backlog=0)
    port = listener.getsockname()[1]
    waiting = []
    for _ in range(8):
        client = socket.socket()
        client.setblocking(False)
        client.connect_ex(("127.0.0.1", port))
        waiting.append(client)
    await asyncio.sleep(0)
    yield f"http://127.0.0.1:{port}"
    for client in (*waiting, listener):
        client.close()


async def test_another_engine_answers(valkey: EmbeddedServer, full: str) -> None:
    async with (
        upstream(answers(reply(200, ANSWER))) as up,
        gateway({"any": {"full": full, "open": up.url}}, valkey.url, impatient) as house,
    ):
        found = [await house.chat(f"call {number}") for number in range(4)]
        assert [answer.content for answer in found] == [ANSWER] * 4
        await house.nothing_left()
        assert await house.charged() == 4 * 5
        failed = await house.metric("kvgate_attempts_total", replica="full", outcome="failure")
        assert failed >= 1
        assert await house.metric("kvgate_timeouts_total", pool="any", wait="connect") == failed


async def test_with_no_other_the_client_is_told_and_pays_nothing(valkey: EmbeddedServer, full: str) -> None:
    async with gateway({"any": {"full": full}}, valkey.url, impatient) as house:
        answer = await house.chat(stream=True)
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (502, "engine_unreachable")
        assert error["message"] == "The engine could not be reached in time."
        await house.nothing_left()
        assert await house.charged() == 0
        assert await house.metric("kvgate_requests_total", outcome="engine_failed") == 1
        assert await house.metric("kvgate_attempts_total") == 1
