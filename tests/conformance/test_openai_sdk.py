"""The `openai` package, as users have it, against the gateway: what it asks, what it raises, what it shows."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, OpenAI

from gateway.embedded import EmbeddedServer
from tests.house import KEY, House, house

HELLO: Any = [{"role": "user", "content": "Hello!"}]


@asynccontextmanager
async def client(running: House, **options: Any) -> AsyncIterator[AsyncOpenAI]:
    usual: dict[str, Any] = {"base_url": running.url, "api_key": KEY, "max_retries": 0}
    async with AsyncOpenAI(**usual | options) as made:
        yield made


@pytest.fixture
async def running(valkey: EmbeddedServer) -> AsyncIterator[House]:
    async with house(valkey.url) as started:
        yield started
        await started.nothing_left()


async def test_a_whole_answer(running: House) -> None:
    async with client(running) as sdk:
        answer = await sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=8)
    assert answer.model == "demo"
    assert answer.choices[0].message.content
    assert answer.usage is not None and answer.usage.completion_tokens == 8


async def test_a_stream_has_usage_only_if_asked_for(running: House) -> None:
    async with client(running) as sdk:
        plain = [c async for c in await sdk.chat.completions.create(model="demo", messages=HELLO, stream=True)]
        asked = await sdk.chat.completions.create(
            model="demo", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        counted = [chunk async for chunk in asked]
    assert all(chunk.usage is None and chunk.choices for chunk in plain)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in plain)
    assert plain[-1].choices[0].finish_reason
    assert counted[-1].usage is not None and not counted[-1].choices


async def test_the_synchronous_client(running: House) -> None:
    def ask() -> tuple[str, str]:
        with OpenAI(base_url=running.url, api_key=KEY) as sdk:
            whole = sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=8)
            stream = sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=8, stream=True)
            streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream)
        return whole.choices[0].message.content or "", streamed

    whole, streamed = await asyncio.to_thread(ask)
    assert whole == streamed != ""


async def test_the_answer_shows_the_alias_that_was_asked_for(running: House) -> None:
    async with client(running) as sdk:
        whole = await sdk.chat.completions.create(model="gpt-4o-mini", messages=HELLO, max_tokens=4)
        stream = await sdk.chat.completions.create(model="gpt-4o-mini", messages=HELLO, max_tokens=4, stream=True)
        models = {chunk.model async for chunk in stream}
    assert {whole.model} == models == {"gpt-4o-mini"}


async def test_several_choices(running: House) -> None:
    async with client(running) as sdk:
        stream = await sdk.chat.completions.create(model="demo", messages=HELLO, n=3, max_tokens=4, stream=True)
        finished = {c.choices[0].index async for c in stream if c.choices[0].finish_reason}
    assert finished == {0, 1, 2}
    await running.nothing_left()
    assert await running.metric("kvgate_tokens_total", kind="decode") == 12


async def test_completions(running: House) -> None:
    async with client(running) as sdk:
        whole = await sdk.completions.create(model="demo", prompt="Once upon a time", max_tokens=8)
        stream = await sdk.completions.create(model="demo", prompt="Once upon a time", max_tokens=8, stream=True)
        text = "".join([chunk.choices[0].text async for chunk in stream])
    assert whole.choices[0].text == text != ""
    assert whole.usage is not None and whole.usage.completion_tokens == 8


async def test_a_prompt_that_comes_back_alone_is_charged_as_the_engine_counts_it(running: House) -> None:
    async with client(running) as sdk:
        whole = await sdk.completions.create(model="demo", prompt="Once upon a time", max_tokens=0, echo=True)
        stream = await sdk.completions.create(
            model="demo", prompt="Once upon a time", max_tokens=0, echo=True, stream=True
        )
        text = "".join([chunk.choices[0].text async for chunk in stream])
        with pytest.raises(openai.BadRequestError, match="max_tokens"):
            await sdk.completions.create(model="demo", prompt="Once upon a time", max_tokens=0)
    assert whole.choices[0].text == text == "Once upon a time"
    assert whole.usage is not None
    await running.nothing_left()
    assert await running.charged() == 2 * whole.usage.total_tokens


async def test_embeddings(running: House) -> None:
    async with client(running) as sdk:
        answer = await sdk.embeddings.create(model="demo", input=["one", "two"])
    assert len(answer.data) == 2 and all(row.embedding for row in answer.data)
    await running.nothing_left()
    assert await running.charged() == answer.usage.total_tokens


async def test_models(running: House) -> None:
    async with client(running) as sdk:
        listed = [model.id async for model in await sdk.models.list()]
        one = await sdk.models.retrieve("demo")
        with pytest.raises(openai.NotFoundError):
            await sdk.models.retrieve("nothing-like-it")
    assert "demo" in listed and one.id == "demo"


@pytest.mark.parametrize("suffix", ["/v1", "", "/", "/v1/"])
async def test_base_urls_with_and_without_v1(running: House, suffix: str) -> None:
    async with client(running, base_url=running.url.removesuffix("/v1") + suffix) as sdk:
        assert (await sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=1)).choices
        assert [model async for model in await sdk.models.list()]


@pytest.mark.parametrize("header", ["x-api-key", "api-key"])
async def test_the_key_in_other_headers(running: House, header: str) -> None:
    headers: Any = {"Authorization": openai.Omit(), header: KEY}
    async with client(running, api_key="unused") as sdk:
        answer = await sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=1, extra_headers=headers)
    assert answer.choices


async def test_an_unknown_key_is_an_authentication_error(running: House) -> None:
    async with client(running, api_key="sk-guess") as sdk:
        with pytest.raises(openai.AuthenticationError) as raised:
            await sdk.chat.completions.create(model="demo", messages=HELLO)
        with pytest.raises(openai.AuthenticationError):
            await sdk.models.list()
    assert raised.value.code == "invalid_api_key"
    assert "guess" not in str(raised.value)


async def test_two_keys_are_an_authentication_error(running: House) -> None:
    async with client(running, default_headers={"x-api-key": KEY}) as sdk:
        with pytest.raises(openai.AuthenticationError):
            await sdk.chat.completions.create(model="demo", messages=HELLO)


async def test_an_unknown_model_is_not_found(running: House) -> None:
    async with client(running) as sdk:
        with pytest.raises(openai.NotFoundError) as raised:
            await sdk.chat.completions.create(model="gpt-9", messages=HELLO)
    assert (raised.value.code, raised.value.param) == ("model_not_found", "model")


async def test_routes_that_are_not_served_yet_are_not_found(running: House) -> None:
    async with client(running) as sdk:
        with pytest.raises(openai.NotFoundError, match="not served yet"):
            await sdk.responses.create(model="demo", input="Hello!")


async def test_what_the_engine_refuses_keeps_its_own_words(running: House) -> None:
    async with client(running) as sdk:
        with pytest.raises(openai.BadRequestError, match="temperature"):
            await sdk.chat.completions.create(model="demo", messages=HELLO, temperature=-3.0)
    await running.nothing_left()
    assert await running.charged() == 0


async def test_a_prompt_that_is_too_long_is_a_bad_request(valkey: EmbeddedServer) -> None:
    def short(data: dict[str, Any]) -> None:
        data["tiers"]["standard"]["context"] = {"limit_tokens": 100}

    async with house(valkey.url, change=short) as running, client(running) as sdk:
        for stream in (False, True):
            with pytest.raises(openai.BadRequestError) as raised:
                await sdk.chat.completions.create(
                    model="demo", messages=[{"role": "user", "content": "far too long " * 100}], stream=stream
                )
            assert (raised.value.code, raised.value.param) == ("context_length_exceeded", "messages")
            assert "prompt is too long" in raised.value.message
            assert "maximum context length is 100 tokens" in raised.value.message
        await running.nothing_left()
        assert await running.charged() == 0
        assert await running.metric("kvgate_attempts_total") == 0


def five_a_second(data: dict[str, Any]) -> None:
    limit = {"name": "rate", "dimension": "requests", "amount": 5, "per": "1s", "burst": 1}
    data["tiers"]["standard"]["budgets"].append(limit)


def one_an_hour(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["budgets"].append({"name": "rate", "dimension": "requests", "amount": 1, "per": "1h"})


async def test_a_spent_budget_is_a_rate_limit_error(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=one_an_hour) as running, client(running) as sdk:
        await sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=1)
        with pytest.raises(openai.RateLimitError) as raised:
            await sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=1, stream=True)
        assert raised.value.code == "rate_limit_exceeded"
        assert 3500 < int(raised.value.response.headers["retry-after"]) <= 3600
        await running.nothing_left()
        assert await running.metric("kvgate_budget_denied_total", limit="rate") == 1
        assert await running.metric("kvgate_requests_total", outcome="denied") == 1


async def test_the_sdk_waits_as_it_is_told_and_then_succeeds(valkey: EmbeddedServer) -> None:
    async with house(valkey.url, change=five_a_second) as running, client(running, max_retries=2) as sdk:
        for _ in range(3):
            assert (await sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=1)).choices
        assert await running.metric("kvgate_budget_denied_total", limit="rate") >= 1
        await running.nothing_left()


async def test_an_engine_that_breaks_off_raises_in_the_middle_of_the_stream(running: House) -> None:
    async with client(running) as sdk:
        stream = await sdk.chat.completions.create(
            model="demo", messages=HELLO, max_tokens=8, stream=True, extra_body={"kvgate_fault": "cut=after:3"}
        )
        seen = 0
        with pytest.raises(openai.APIError, match="broke off"):
            async for _ in stream:
                seen += 1
    assert seen == 1 + 3


async def test_a_client_that_closes_its_stream_stops_the_engine(running: House) -> None:
    async with client(running) as sdk:
        stream = await sdk.chat.completions.create(model="demo", messages=HELLO, max_tokens=4_000, stream=True)
        await anext(aiter(stream))
        await stream.close()
    await running.nothing_left()
    assert await running.metric("kvgate_requests_total", outcome="client_gone") == 1
