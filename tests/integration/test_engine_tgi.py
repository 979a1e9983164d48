"""The emulated TGI: the documented keys are there. No recording exists to hold it against."""

import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientSession, ClientTimeout

from loadtest.engine import Engine, Settings, serve

TGI = Settings(kind="tgi", served_model_name="demo", speed=200, max_model_len=1024)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with serve(TGI) as running:
        yield running


@pytest.fixture
async def session(engine: Engine) -> AsyncIterator[ClientSession]:
    async with ClientSession(engine.url, timeout=ClientTimeout(total=10)) as made:
        yield made


def frames(text: str) -> list[dict[str, object]]:
    lines = [line.removeprefix("data:").strip() for line in text.splitlines() if line.startswith("data:")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


async def test_generate(session: ClientSession) -> None:
    body = {"inputs": "hello", "parameters": {"max_new_tokens": 5, "details": True, "seed": 7}}
    async with session.post("/generate", json=body) as reply:
        whole = await reply.json()
        assert (reply.headers["x-prompt-tokens"], reply.headers["x-generated-tokens"]) == ("1", "5")
    details = whole["details"]
    assert (details["finish_reason"], details["generated_tokens"], details["seed"]) == ("length", 5, 7)
    assert "".join(token["text"] for token in details["tokens"]) == whole["generated_text"]


async def test_a_stream_ends_with_the_text_and_no_marker(session: ClientSession) -> None:
    body = {"inputs": "hello", "parameters": {"max_new_tokens": 5}}
    async with session.post("/generate_stream", json=body) as reply:
        text = await reply.text()
    *early, last = frames(text)
    assert "[DONE]" not in text and len(early) == 4
    assert {frame["generated_text"] for frame in early} == {None} == {frame["details"] for frame in early}
    assert last["details"] == {"finish_reason": "length", "generated_tokens": 5, "seed": None, "input_length": 1}


async def test_the_root_answers_a_list(session: ClientSession) -> None:
    async with session.post("/", json={"inputs": "hello", "parameters": {"max_new_tokens": 2}}) as reply:
        assert [sorted(item) for item in await reply.json()] == [["generated_text"]]


async def test_chat_streams_usage_if_asked_and_ends_with_done(session: ClientSession) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True}
    async with session.post("/v1/chat/completions", json=body) as reply:
        assert not any("usage" in frame for frame in frames(await reply.text()))
    async with session.post("/v1/chat/completions", json={**body, "stream_options": {"include_usage": True}}) as reply:
        text = await reply.text()
    assert text.endswith("data: [DONE]\n\n")
    usage = frames(text)[-1]["usage"]
    assert isinstance(usage, dict) and usage["completion_tokens"] == 4


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"inputs": "a " * 2000}, "`inputs` must have less than 1023 tokens"),
        ({"inputs": "hello", "parameters": {"max_new_tokens": 5000}}, "must be <= 1024"),
        ({"inputs": "hello", "parameters": {"max_new_tokens": 0}}, "parameters.max_new_tokens"),
        ({}, "inputs: Field required"),
    ],
)
async def test_errors_are_two_strings(session: ClientSession, body: dict[str, object], told: str) -> None:
    async with session.post("/generate", json=body) as reply:
        error = await reply.json()
    assert reply.status == 422 and error["error_type"] == "validation" and told in error["error"]


async def test_overload_is_429() -> None:
    settings = TGI.model_copy(update={"max_num_queued_reqs": 1, "speed": 0.001})
    async with (
        serve(settings) as full,
        ClientSession(full.url) as session,
        session.post("/generate_stream", json={"inputs": "hello"}),
        session.post("/generate", json={"inputs": "hello"}) as reply,
    ):
        assert reply.status == 429
        assert await reply.json() == {"error": "Model is overloaded", "error_type": "overloaded"}


async def test_info_and_metrics(session: ClientSession) -> None:
    async with session.get("/info") as reply:
        info = await reply.json()
    assert (info["model_id"], info["max_input_tokens"], info["max_total_tokens"]) == ("demo", 1023, 1024)
    async with session.post("/generate", json={"inputs": "hello", "parameters": {"max_new_tokens": 2}}):
        pass
    async with session.get("/metrics") as reply:
        lines = (await reply.text()).splitlines()
    assert "tgi_request_success 1.0" in lines
    names = {line.split("{")[0].split()[0] for line in lines if not line.startswith("#")}
    assert names >= {"tgi_queue_size", "tgi_batch_current_size", "tgi_batch_current_max_tokens"}
    assert not any(name.endswith("_created") for name in names)


async def test_an_error_in_a_stream_is_native(session: ClientSession) -> None:
    body = {"inputs": "hello", "parameters": {"max_new_tokens": 9}, "kvgate_fault": "error=after:2"}
    async with session.post("/generate_stream", json=body) as reply:
        last = frames(await reply.text())[-1]
    assert set(last) == {"error", "error_type"}
