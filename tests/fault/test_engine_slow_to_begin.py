"""An engine that does not begin in time: the client is told, the engine is let go, no other one is asked."""

from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import gateway, house
from tests.upstream import CHUNKED, stalls_after, upstream


def impatient(data: dict[str, Any]) -> None:
    data["routing"] |= {"first_token_timeout": "100ms", "idle_timeout": "100ms"}


@pytest.mark.parametrize("stream", [True, False])
async def test_no_head_in_time_is_a_504(valkey: EmbeddedServer, stream: bool) -> None:
    async with house(valkey.url, change=impatient) as running:
        answer = await running.chat(stream=stream, kvgate_fault="slow=seconds:1000")
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
        await running.nothing_left()
        assert await running.charged() == 0
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await running.metric("kvgate_requests_total", outcome="engine_failed") == 1


async def test_a_head_and_then_no_first_token_is_a_504_too(valkey: EmbeddedServer) -> None:
    async with upstream(stalls_after(CHUNKED)) as up, gateway({"any": {"one": up.url}}, valkey.url, impatient) as house:
        answer = await house.chat(stream=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (504, "engine_timeout")
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.charged() == 0
