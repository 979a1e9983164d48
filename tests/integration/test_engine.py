"""The emulated engine as a client meets it: through the OpenAI SDK, over real sockets, with its clock running."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable

import pytest
from aiohttp import ClientSession, ClientTimeout
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.chat.chat_completion_message_function_tool_call_param import Function

from gateway.tokens import counter
from loadtest.engine import Engine, Settings, serve

FAST = Settings(served_model_name="demo", speed=200, max_model_len=8192)
WEATHER: ChatCompletionToolParam = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with serve(FAST) as running:
        yield running


@pytest.fixture
async def client(engine: Engine) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="none", max_retries=0) as made:
        yield made


def said(text: str) -> ChatCompletionMessageParam:
    return {"role": "user", "content": text}


async def test_a_reply_has_as_many_tokens_as_it_says(client: AsyncOpenAI) -> None:
    reply = await client.chat.completions.create(model="demo", messages=[said("hello")], max_tokens=37)
    assert reply.usage is not None and reply.choices[0].message.content is not None
    assert reply.usage.completion_tokens == 37 == counter()(reply.choices[0].message.content)
    assert reply.choices[0].finish_reason == "length"


async def test_a_stream_says_the_same_as_a_reply_in_one_piece(client: AsyncOpenAI) -> None:
    whole = await client.chat.completions.create(model="demo", messages=[said("hello")], max_tokens=20)
    stream = await client.chat.completions.create(model="demo", messages=[said("hello")], max_tokens=20, stream=True)
    pieces = [chunk.choices[0].delta.content or "" async for chunk in stream]
    assert "".join(pieces) == whole.choices[0].message.content


async def test_a_conversation_with_a_tool_and_a_warm_second_turn(client: AsyncOpenAI) -> None:
    history: list[ChatCompletionMessageParam] = [
        {"role": "system", "content": "You are brief. " * 20},
        said('Use get_weather {"city": "Oslo"}'),
    ]
    first = await client.chat.completions.create(model="demo", messages=history, tools=[WEATHER])
    calls = first.choices[0].message.tool_calls
    assert first.choices[0].finish_reason == "tool_calls" and calls is not None and calls[0].type == "function"
    assert json.loads(calls[0].function.arguments) == {"city": "Oslo"}
    function: Function = {"name": calls[0].function.name, "arguments": calls[0].function.arguments}
    history.append({"role": "assistant", "tool_calls": [{"id": calls[0].id, "type": "function", "function": function}]})
    history.append({"role": "tool", "tool_call_id": calls[0].id, "content": "3 degrees " * 5_000})
    with pytest.raises(BadRequestError, match="maximum context length is 8192"):
        await client.chat.completions.create(model="demo", messages=history, tools=[WEATHER])
    history[-1] = {"role": "tool", "tool_call_id": calls[0].id, "content": "3 degrees"}
    second = await client.chat.completions.create(model="demo", messages=history, tools=[WEATHER], max_tokens=20)
    assert second.choices[0].message.content
    assert second.usage is not None and second.usage.prompt_tokens_details is not None
    assert first.usage is not None
    cached = second.usage.prompt_tokens_details.cached_tokens
    assert cached is not None and cached >= first.usage.prompt_tokens // 16 * 16


async def test_a_streamed_tool_call_can_be_put_together(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(
        model="demo", messages=[said("get_weather please")], tools=[WEATHER], stream_options={"include_usage": True}
    ) as stream:
        final = await stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert calls and calls[0].function.name == "get_weather"
    assert set(json.loads(calls[0].function.arguments)) == {"city"}
    assert final.usage is not None and final.usage.completion_tokens > 10


async def test_two_choices_differ_and_both_count(client: AsyncOpenAI) -> None:
    reply = await client.chat.completions.create(model="demo", messages=[said("hello")], max_tokens=8, n=2)
    first, second = (choice.message.content for choice in reply.choices)
    assert first != second
    assert reply.usage is not None and reply.usage.completion_tokens == 16


async def test_errors_are_those_the_sdk_knows(client: AsyncOpenAI, engine: Engine) -> None:
    with pytest.raises(NotFoundError, match="does not exist"):
        await client.chat.completions.create(model="nope", messages=[said("hello")])
    async with serve(FAST.model_copy(update={"api_key": "secret"})) as guarded:
        stranger = client.with_options(base_url=f"{guarded.url}/v1")
        with pytest.raises(AuthenticationError):
            await stranger.models.list()
        assert [
            model.id
            async for model in client.with_options(base_url=f"{guarded.url}/v1", api_key="secret").models.list()
        ]


async def test_the_model_tells_its_context(client: AsyncOpenAI) -> None:
    (model,) = (await client.models.list()).data
    assert (model.id, model.model_extra and model.model_extra["max_model_len"]) == ("demo", 8192)


async def test_embeddings_are_off_unless_switched_on(client: AsyncOpenAI) -> None:
    with pytest.raises(NotFoundError):
        await client.embeddings.create(model="demo", input="hello")
    async with serve(FAST.model_copy(update={"enable_embeddings": True})) as pooling:
        embed = client.with_options(base_url=f"{pooling.url}/v1").embeddings.create
        one, same, other = (await embed(model="demo", input=["hello", "hello", "goodbye"])).data
        as_list = await embed(model="demo", input="hello", encoding_format="float")
    assert one.embedding == same.embedding != other.embedding
    assert sum(value * value for value in one.embedding) == pytest.approx(1.0, abs=1e-5)
    assert as_list.data[0].embedding == pytest.approx(one.embedding, abs=1e-6)


async def test_many_at_once_share_steps(client: AsyncOpenAI, engine: Engine) -> None:
    asked = [client.chat.completions.create(model="demo", messages=[said(str(at))], max_tokens=20) for at in range(20)]
    replies = await asyncio.gather(*asked)
    assert {reply.usage and reply.usage.completion_tokens for reply in replies} == {20}
    steps = float(_series(engine, "vllm:iteration_tokens_total_count"))
    assert steps < 20 * 20, "fewer steps than tokens: they were computed together"


@pytest.mark.parametrize("stream", [True, False])
async def test_a_client_that_leaves_frees_its_blocks_at_once(stream: bool) -> None:
    body = {"messages": [said("hello")], "max_tokens": 8000, "ignore_eos": True, "stream": stream}
    async with serve(FAST.model_copy(update={"speed": 1.0})) as slow:
        scheduler = slow.emulator.driver.scheduler
        async with ClientSession(timeout=ClientTimeout(total=5)) as session:
            asking = asyncio.create_task(session.post(f"{slow.url}/v1/chat/completions", json=body))
            await _until(lambda: bool(scheduler.running))
            if stream:
                await (await asking).content.readline()
            else:
                asking.cancel()
        await _until(lambda: scheduler.idle)
        assert scheduler.pool.used == 0 and slow.emulator.serving == 0


async def test_load_on_the_reply_for_those_who_ask(engine: Engine) -> None:
    body = {"messages": [said("hello")], "max_tokens": 2}
    async with ClientSession() as session:
        for asked, start in (("json", 'JSON {"named_metrics":{"kv_cache'), ("text", "TEXT named_metrics.kv_cache")):
            headers = {"endpoint-load-metrics-format": asked}
            async with session.post(f"{engine.url}/v1/chat/completions", json=body, headers=headers) as reply:
                assert reply.headers["endpoint-load-metrics"].startswith(start)


async def test_pressure_on_the_cache_preempts_and_loses_nothing() -> None:
    tight = FAST.model_copy(update={"max_model_len": 480, "num_gpu_blocks_override": 40})
    async with serve(tight) as engine, AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="x") as client:
        asked = [
            client.chat.completions.create(
                model="demo", messages=[said(f"{at} " * 40)], max_tokens=200, extra_body={"ignore_eos": True}
            )
            for at in range(6)
        ]
        replies = await asyncio.gather(*asked)
        assert [reply.usage and reply.usage.completion_tokens for reply in replies] == [200] * 6
        assert float(_series(engine, "vllm:num_preemptions_total")) > 0


async def test_speed_is_the_gpu_s_times_the_factor() -> None:
    """Not a measurement: the engine's own account of a decode step, 6 ms on this GPU, is scaled down."""
    async with serve(FAST) as engine, AsyncOpenAI(base_url=f"{engine.url}/v1", api_key="x") as client:
        await client.chat.completions.create(model="demo", messages=[said("hello")], max_tokens=200)
        mean = float(_series(engine, "vllm:inter_token_latency_seconds_sum")) / 199
    assert mean > 0.004 / 200


def _series(engine: Engine, name: str) -> str:
    lines = engine.emulator.metrics.scrape().decode().splitlines()
    return next(line.split()[-1] for line in lines if line.startswith(f"{name}{{"))


async def _until(condition: "Callable[[], bool]") -> None:
    """Poll: the engine signals nobody about its inside; the test's own time limit ends a wait in vain."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.002)
