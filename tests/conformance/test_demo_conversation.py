"""The conversation that the demo is for, on the demo's own configuration: a long prompt, a tool, 50 kB of its output,
streamed, through two pools."""

from typing import Any

import yaml
from openai import AsyncOpenAI

from gateway.demo import CONFIG_FILE, KEY
from gateway.embedded import EmbeddedServer
from tests.house import SPLIT, House, house

TOOL: Any = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Reads a file.",
        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
    },
}
INSTRUCTIONS = "You are careful and you read files before you answer. " * 800
OUTPUT = "\n".join(f"line {number}: the quick brown fox jumps over the lazy dog" for number in range(1_000))


def as_shipped(data: dict[str, Any]) -> None:
    """The demo's file, its engines where these run."""
    urls = {r["name"]: r["url"] for pool in data["pools"].values() for r in pool["replicas"]}
    data.clear()
    data.update(yaml.safe_load(CONFIG_FILE.read_text("utf-8")))
    for pool in data["pools"].values():
        for replica in pool["replicas"]:
            replica["url"] = urls[replica["name"]]


class Chat:
    """A conversation as an agent has it."""

    def __init__(self, sdk: AsyncOpenAI) -> None:
        self._sdk = sdk
        self.messages: list[Any] = [{"role": "system", "content": INSTRUCTIONS}]
        self.context = ""

    async def turn(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say this; the whole answer, put together from its stream."""
        self.messages.append(message)
        raw = await self._sdk.chat.completions.with_raw_response.create(
            model="demo", messages=self.messages, tools=[TOOL], max_tokens=16, stream=True
        )
        self.context = raw.headers["x-kvgate-context"]
        answer = await put_together(raw.parse())
        self.messages.append(answer)
        return answer


async def put_together(stream: Any) -> dict[str, Any]:
    text, calls = "", dict[int, dict[str, Any]]()
    async for chunk in stream:
        delta = chunk.choices[0].delta
        text += delta.content or ""
        for piece in delta.tool_calls or ():
            call = calls.setdefault(piece.index, {"type": "function", "function": {"name": "", "arguments": ""}})
            call["id"] = piece.id or call.get("id")
            call["function"]["name"] += piece.function.name or ""
            call["function"]["arguments"] += piece.function.arguments or ""
    answer: dict[str, Any] = {"role": "assistant", "content": text or None}
    return answer | ({"tool_calls": list(calls.values())} if calls else {})


async def used(running: House) -> set[str]:
    """The replicas that have been sent something."""
    names = [name for names in SPLIT.values() for name in names]
    return {name for name in names if await running.metric("kvgate_attempts_total", replica=name)}


async def cache_hits(running: House, replica: str) -> float:
    return await running.engine_metric(replica, "vllm:prefix_cache_hits_total")


async def test_trimmed_cached_and_split_by_phase(valkey: EmbeddedServer) -> None:
    async with (
        house(valkey.url, SPLIT, as_shipped) as running,
        AsyncOpenAI(base_url=running.url, api_key=KEY, max_retries=0) as sdk,
    ):
        chat = Chat(sdk)
        asked = await chat.turn({"role": "user", "content": "Use read_file on notes.txt."})
        (call,) = asked["tool_calls"]
        assert call["function"]["name"] == "read_file"
        await running.quiet()
        (home,) = await used(running)
        assert home in SPLIT["prefill"], "a long prompt and a short answer"
        assert await running.metric("kvgate_requests_total", pool="prefill", tenant="demo", outcome="ok") == 1

        hits = await cache_hits(running, home)
        await chat.turn({"role": "tool", "tool_call_id": call["id"], "content": OUTPUT})
        await running.quiet()
        # Beside the output, the arguments that the limit on the reply cut off are mended.
        assert len(OUTPUT) > 50_000 and chat.context.endswith("edits=2")
        assert await running.metric("kvgate_context_removed_tokens_total", policy="trim_tool_output") > 9_000
        assert await used(running) == {home}, "the session stays where its prefix is warm"
        warm = await cache_hits(running, home)
        assert warm > hits

        await chat.turn({"role": "user", "content": "Thank you. And now?"})
        await running.quiet()
        assert chat.context.endswith("edits=2"), "what was trimmed stays trimmed"
        assert await used(running) == {home}
        assert await cache_hits(running, home) > warm
        assert await running.metric("kvgate_tokens_total", tenant="demo", kind="cached") > 0

        await sdk.chat.completions.create(
            model="demo", messages=[{"role": "user", "content": "Tell me a long story."}], max_tokens=500
        )
        await running.nothing_left()
        for pool in SPLIT:
            assert await running.metric("kvgate_requests_total", pool=pool, outcome="ok") >= 1
            assert await running.metric("kvgate_in_flight", pool=pool) == 0
        assert await running.metric("kvgate_sessions_total", found="known") == 2
        assert await running.metric("kvgate_context_violations_total") == 0
