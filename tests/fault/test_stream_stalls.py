"""An engine that stops in the middle of a stream and says nothing more."""

import json
from typing import Any

from gateway.embedded import EmbeddedServer
from tests.house import events, gateway, house
from tests.upstream import CHUNKED, chunk, frame, stalls_after, upstream


def impatient(data: dict[str, Any]) -> None:
    data["routing"] |= {"idle_timeout": "100ms"}


async def test_the_client_gets_an_error_event_and_the_engine_is_let_go(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=impatient) as running:
        answer = await running.chat(stream=True, kvgate_fault="stall=after:3")
        *content, last = events(answer.content)
        assert len(content) == 1 + 3  # the role and three tokens
        assert json.loads(last)["error"]["code"] == "engine_timeout"
        await running.nothing_left()
        assert await running.metric("kvgate_requests_total", outcome="broken") == 1
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await running.metric("kvgate_timeouts_total", pool="any", wait="next_token") == 1
        assert await running.metric("kvgate_timeouts_total") == 1
        assert await running.metric("kvgate_requests_estimated_total") == 1
        assert await running.metric("kvgate_tokens_total", kind="decode") == 3


async def test_half_a_frame_is_not_shown(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, chunk(frame("seen")), chunk(frame("half")[:40]))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url, impatient) as house:
        answer = await house.chat(stream=True)
        assert answer.content.startswith(frame("seen") + b'data: {"error":')
        assert len(events(answer.content)) == 2
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.charged() > 0
