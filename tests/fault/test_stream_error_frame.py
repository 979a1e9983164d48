"""An engine that reports its own failure inside the stream: its frame and its `[DONE]` pass unchanged."""

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import events, gateway, house
from tests.upstream import DONE, frame, streams, upstream

FAILED = (
    b'data: {"error": {"message": "EngineCore encountered an issue", "type": "InternalServerError", "code": 500}}\n\n'
)


async def test_the_bytes_pass_as_they_came(valkey: EmbeddedServer) -> None:
    sent = (frame("one"), FAILED, DONE)
    async with upstream(streams(*sent)) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat(stream=True)
        assert answer.content == b"".join(sent)
        await house.nothing_left()
        assert await house.charged() > 0
        assert await house.metric("kvgate_requests_total", outcome="broken") == 1
        assert await house.metric("kvgate_requests_estimated_total") == 1
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 1


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n"])
@pytest.mark.parametrize("model", ["demo", "gpt-4o-mini"])
async def test_an_error_that_the_engine_does_not_finish_saying_is_finished(
    valkey: EmbeddedServer, end: bytes, model: str
) -> None:
    """Without a blank line behind it no client would see it: the stream would seem to end well."""
    cut = FAILED.removesuffix(b"\n\n") + end
    async with upstream(streams(frame("one"), cut)) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat(stream=True, model=model)
        assert answer.content.endswith(cut + b"\n\n")
        assert "EngineCore encountered an issue" in events(answer.content)[-1]
        await house.nothing_left()
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 1


async def test_an_emulated_engine(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        answer = await running.chat(stream=True, kvgate_fault="error=after:3")
        *content, error, done = events(answer.content)
        assert (len(content), done) == (1 + 3, "[DONE]")
        assert '"error"' in error and "engine_broke_off" not in error
        await running.nothing_left()
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await running.metric("kvgate_tokens_total", kind="decode") == 3
        assert await running.charged_as_counted() > 3
