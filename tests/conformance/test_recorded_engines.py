"""Replies of real engines, recorded byte for byte, through the gateway: what a client must get of each.

Rule: success passes unchanged but for the usage that nobody asked for; an engine's refusal passes with its own error;
what says something about the engine, not about the request, is told in our words.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from tests.conformance.engine.recording import SAMPLES, Message, parse
from tests.house import KEY, House, gateway
from tests.upstream import Peer, upstream

SERVED = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings")
KINDS = {"vllm-0.32.0": "vllm"}
"""What a pool calls the engine; every other one is a plain `openai`."""

MODELS = ("tiny", "models/tiny")
"""What the recorded requests ask for."""

OURS = {
    "err_bad_json": 400,
    "err_empty_body": 400,
    "err_wrong_content_type": 400,
    "err_unknown_model": 404,
    "err_unknown_model_stream": 404,
    "err_no_messages": 400,
    "err_empty_messages": 400,
    "err_max_tokens_zero": 400,
    "err_max_tokens_negative": 400,
}
"""Refused before an engine is asked, with the status that the engine gave too."""


UNFINISHED = {"llama-cpp-python-0.3.36/err_context_too_long_stream", "transformers-serve-5.19.0/chat_n2_stream"}
"""No whole answers: an empty stream for a prompt that is too long, and one choice of two without an end."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A recorded request and reply; `raw` are the reply's bytes."""

    folder: str
    name: str
    request: Message
    response: Message
    raw: bytes

    @property
    def path(self) -> str:
        return self.request.start.split()[1]

    @property
    def wants_usage(self) -> bool:
        options = json.loads(self.request.body).get("stream_options") or {}
        return bool(options.get("include_usage"))


def recorded() -> Iterator[Exchange]:
    """Every recorded call to a path that the gateway serves."""
    for file in sorted(SAMPLES.glob("*/*.request.http")):
        name = file.name.removesuffix(".request.http")
        raw = file.with_name(f"{name}.response.http").read_bytes()
        exchange = Exchange(file.parent.name, name, parse(file.read_bytes()), parse(raw), raw)
        if exchange.request.start.startswith("POST") and exchange.path in SERVED:
            yield exchange


ALL = list(recorded())


def named(exchange: Exchange) -> str:
    return f"{exchange.folder}/{exchange.name}"


@asynccontextmanager
async def before(exchange: Exchange, valkey: EmbeddedServer) -> AsyncIterator[House]:
    """A gateway in front of an engine that replies as recorded."""

    async def replies(peer: Peer) -> None:
        await peer.send(exchange.raw)
        peer.writer.close()

    def change(data: dict[str, Any]) -> None:
        data["models"] = {name: {"geometry": "llama-3.1-8b"} for name in MODELS}
        data["pools"]["any"] |= {"models": list(MODELS), "engine": KINDS.get(exchange.folder, "openai")}

    async with upstream(replies) as up, gateway({"any": {"one": up.url}}, valkey.url, change) as house:
        yield house
        await house.nothing_left()


async def replayed(house: House, exchange: Exchange) -> httpx.Response:
    headers = {"authorization": f"Bearer {KEY}", "content-type": exchange.request.headers["content-type"]}
    path = exchange.path.removeprefix("/v1")
    return await house.http.post(path, content=exchange.request.body, headers=headers)


def of(*statuses: int) -> list[Exchange]:
    """The recordings with these statuses that an engine is asked for."""
    return [exchange for exchange in ALL if exchange.name not in OURS and exchange.response.status in statuses]


def is_stream(exchange: Exchange) -> bool:
    return exchange.response.headers["content-type"].startswith("text/event-stream")


def used(exchange: Exchange) -> dict[str, int]:
    """The engine's own account of the call."""
    events = exchange.response.events if is_stream(exchange) else [exchange.response.json]
    found = [event["usage"] for event in events if isinstance(event, dict) and event.get("usage")]
    return dict(found[-1]) if found else {}


def without_usage_frames(body: bytes) -> bytes:
    """A stream's bytes less the frames that carry usage and no choice."""
    return b"".join(frame for frame in frames(body) if not is_usage(frame))


def frames(body: bytes) -> list[bytes]:
    border = b"\r\n\r\n" if b"\r\n\r\n" in body else b"\n\n"
    return [frame + border for frame in body.split(border) if frame.strip()]


def is_usage(frame: bytes) -> bool:
    data = frame.strip().removeprefix(b"data: ")
    event = json.loads(data) if data.startswith(b"{") else {}
    return bool(event.get("usage")) and event.get("choices") == []


@pytest.mark.parametrize("exchange", [e for e in of(200) if not is_stream(e)], ids=named)
async def test_a_whole_answer_passes_as_it_is(valkey: EmbeddedServer, exchange: Exchange) -> None:
    async with before(exchange, valkey) as house:
        answer = await replayed(house, exchange)
        assert (answer.status_code, answer.content) == (200, exchange.response.body)
        await house.nothing_left()
        if total := used(exchange).get("total_tokens"):
            assert await house.charged() == total
            assert await house.metric("kvgate_requests_estimated_total") == 0


@pytest.mark.parametrize("exchange", [e for e in of(200) if is_stream(e)], ids=named)
async def test_a_stream_passes_as_it_is(valkey: EmbeddedServer, exchange: Exchange) -> None:
    async with before(exchange, valkey) as house:
        answer = await replayed(house, exchange)
        body = exchange.response.body
        if named(exchange) in UNFINISHED:
            assert b"engine_broke_off" in answer.content, "not passed off as whole"
        else:
            assert answer.content == (body if exchange.wants_usage else without_usage_frames(body))
        await house.nothing_left()
        if total := used(exchange).get("total_tokens"):
            assert await house.charged() == total


@pytest.mark.parametrize("exchange", of(400, 404, 501), ids=named)
async def test_a_refusal_passes_with_the_engine_s_own_error(valkey: EmbeddedServer, exchange: Exchange) -> None:
    async with before(exchange, valkey) as house:
        answer = await replayed(house, exchange)
        assert answer.status_code == exchange.response.status
        said = answer.json()["error"]
        assert {"message", "type"} <= set(said)
        if exchange.response.body.startswith(b'{"error":{'):
            assert answer.content == exchange.response.body
        await house.nothing_left()
        assert await house.charged() == 0
        assert await house.metric("kvgate_requests_total", outcome="engine_refused") == 1
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 0


@pytest.mark.parametrize("exchange", of(401), ids=named)
async def test_a_key_that_the_engine_refuses_is_our_trouble(valkey: EmbeddedServer, exchange: Exchange) -> None:
    """A client that was told 401 would change its own key."""
    async with before(exchange, valkey) as house:
        answer = await replayed(house, exchange)
        assert (answer.status_code, answer.json()["error"]["type"]) == (502, "server_error")


@pytest.mark.parametrize("exchange", of(503), ids=named)
async def test_a_busy_engine_is_busy(valkey: EmbeddedServer, exchange: Exchange) -> None:
    async with before(exchange, valkey) as house:
        answer = await replayed(house, exchange)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_busy")
        assert int(answer.headers["retry-after"]) >= 1


@pytest.mark.parametrize("exchange", of(500), ids=named)
async def test_an_engine_s_failure_is_told_in_our_words(valkey: EmbeddedServer, exchange: Exchange) -> None:
    async with before(exchange, valkey) as house:
        answer = await replayed(house, exchange)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_error")
        assert "File" not in answer.text, "no stack trace"
        await house.nothing_left()
        assert await house.charged() == 0


@pytest.mark.parametrize("exchange", [e for e in ALL if e.name in OURS and e.folder == "vllm-0.32.0"], ids=named)
async def test_what_we_refuse_has_the_status_that_the_engine_gives(valkey: EmbeddedServer, exchange: Exchange) -> None:
    async with before(exchange, valkey) as house:
        answer = await replayed(house, exchange)
        assert answer.status_code == exchange.response.status == OURS[exchange.name]
        assert set(answer.json()["error"]) >= {"message", "type", "param", "code"}
        assert await house.metric("kvgate_attempts_total") == 0


def test_every_recording_is_looked_at() -> None:
    statuses = {exchange.response.status for exchange in ALL}
    assert statuses <= {200, 400, 401, 404, 500, 501, 503}
    assert len(ALL) > 60
