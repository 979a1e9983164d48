"""A client that leaves: the engine stops generating, streamed or not."""

import asyncio
import json

import pytest

from gateway.app import Gateway
from tests.vllm.conftest import counted
from tests.vllm.engine import GENERATED, RUNNING, Engine

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

ASKED_TOKENS = 3_000
"""Minutes of work here, so that what has stopped has been stopped."""


def asking(stream: bool) -> bytes:
    body = json.dumps(
        {
            "model": "smollm2",
            "messages": [{"role": "user", "content": "Count."}],
            "max_tokens": ASKED_TOKENS,
            "ignore_eos": True,
            "stream": stream,
        }
    ).encode()
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer sk-plain\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


@pytest.mark.parametrize("stream", [True, False])
async def test_the_engine_stops_when_the_client_leaves(
    gateway: Gateway, engine: Engine, tell: list[str], stream: bool
) -> None:
    before = (await engine.idle())[GENERATED]
    reader, writer = await asyncio.open_connection("127.0.0.1", gateway.port)
    writer.write(asking(stream))
    if stream:
        await reader.readuntil(b'"content":"')
    while (await engine.metrics())[RUNNING] != 1:  # noqa: ASYNC110  # the engine is another process
        await asyncio.sleep(0.05)
    writer.close()
    generated = (await engine.idle())[GENERATED] - before
    assert generated < ASKED_TOKENS / 2
    assert (await counted(gateway))["kvgate_requests_total client_gone"] == 1
    tell.append(f"client gone, stream {stream}: {generated:.0f} of {ASKED_TOKENS} tokens were generated")
