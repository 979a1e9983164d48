"""A chat over several turns with a tool call and a 50 kB tool result, streamed, by the OpenAI SDK."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from openai import AsyncOpenAI
from openai.types import CompletionUsage
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolUnionParam

from gateway.app import Gateway
from tests.vllm.conftest import counted
from tests.vllm.engine import CACHE_HITS, Engine

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

TOOL: ChatCompletionToolUnionParam = {
    "type": "function",
    "function": {
        "name": "read_log",
        "description": "The log of a pump.",
        "parameters": {
            "type": "object",
            "properties": {"pump": {"type": "string", "enum": ["north", "south"]}},
            "required": ["pump"],
            "additionalProperties": False,
        },
    },
}
LOG = "".join(f"{line:05d} pump north pressure 4.{line % 97:02d} bar, valve open\n" for line in range(1_100))


@dataclass(slots=True)
class Streamed:
    """What a client keeps of one streamed reply."""

    context: str
    text: str = ""
    call: tuple[str, str] = ("", "")
    finish: str | None = None
    usage: CompletionUsage | None = None

    @property
    def cached_tokens(self) -> int:
        assert self.usage is not None and self.usage.prompt_tokens_details is not None
        return self.usage.prompt_tokens_details.cached_tokens or 0


@dataclass(slots=True)
class Chat:
    """A client that sends the whole conversation at every step, as clients do."""

    client: AsyncOpenAI
    messages: list[ChatCompletionMessageParam] = field(default_factory=list)

    async def step(self, *, calls: bool = False) -> Streamed:
        reply = await self.client.chat.completions.with_raw_response.create(
            model="smollm2",
            messages=self.messages,
            tools=[TOOL],
            tool_choice={"type": "function", "function": {"name": "read_log"}} if calls else "none",
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
        seen = Streamed(reply.headers["x-kvgate-context"])
        async for chunk in reply.parse():
            seen.usage = chunk.usage or seen.usage
            for choice in chunk.choices:
                seen.finish = choice.finish_reason or seen.finish
                seen.text += choice.delta.content or ""
                for call in choice.delta.tool_calls or ():
                    assert call.function is not None
                    seen.call = (seen.call[0] or call.id or "", seen.call[1] or call.function.name or "")
        return seen


@pytest.fixture
async def chat(gateway: Gateway) -> AsyncIterator[Chat]:
    async with AsyncOpenAI(
        base_url=f"http://127.0.0.1:{gateway.port}/v1", api_key="sk-alice", max_retries=0, timeout=600
    ) as client:
        yield Chat(client)


async def test_a_long_tool_result_is_trimmed_and_the_next_turn_finds_the_cache_warm(
    chat: Chat, gateway: Gateway, engine: Engine, tell: list[str]
) -> None:
    assert len(LOG) > 50_000
    before = await engine.metrics()
    chat.messages = [
        {"role": "system", "content": "You watch pumps."},
        {"role": "user", "content": "How is the north pump? Read its log first."},
    ]
    called = await chat.step(calls=True)
    identity, name = called.call
    assert identity and name == "read_log"
    # A model of this size does not get the arguments right, so the client does.
    arguments = '{"pump": "north"}'
    chat.messages += [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}],
        },
        {"role": "tool", "tool_call_id": identity, "content": LOG},
    ]
    first = await chat.step()
    chat.messages += [
        {"role": "assistant", "content": first.text},
        {"role": "user", "content": "And the valve?"},
    ]
    second = await chat.step()

    for reply in (first, second):
        assert reply.finish in ("stop", "length")
        assert "edits=1" in reply.context
    hits = (await engine.idle())[CACHE_HITS] - before[CACHE_HITS]
    assert second.cached_tokens > first.cached_tokens and hits >= second.cached_tokens
    ours = await counted(gateway)
    assert [ours.get(f"kvgate_sessions_total {found}", 0) for found in ("new", "known", "fork")] == [1, 2, 0]
    assert "kvgate_context_violations_total" not in ours
    assert second.usage is not None
    tell.append(
        f"conversation: {second.context}; the engine counted {second.usage.prompt_tokens} prompt tokens, "
        f"{second.cached_tokens} of them cached"
    )
