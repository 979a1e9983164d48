"""Forty turns with a tool's output each, by policies kept far below the engine's window of 4,096 tokens.

What the engine finds in its cache is predicted from the prompts that it was sent, tokenized by itself: whole blocks, up
to the first token that differs from every prompt before.
"""

import re
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from bench.context_sessions import log, wire_turn
from bench.prefix_cache import PrefixCache, Tokens
from tests.vllm.conftest import counted, serving
from tests.vllm.engine import Engine
from tests.vllm.hop import Passed, hop

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TURNS = 40
OUTPUT_TOKENS = 250
TRIGGER_TOKENS = 2_500
"""The high water of the tier `agent`; its limit is 3,000, and the engine's window 4,096."""
FIRST_CALLS = 3
"""Until then the gateway has not learned yet how many of the engine's tokens one of its own is."""


async def tokens(client: httpx.AsyncClient, body: dict[str, Any]) -> Tokens:
    """The prompt as the engine sees it."""
    asked = {name: body[name] for name in ("model", "messages", "prompt") if name in body}
    answer = await client.post("/tokenize", json=asked)
    assert answer.status_code == 200, answer.text
    return array("I", answer.json()["tokens"])


async def output(client: httpx.AsyncClient, turn: int) -> str:
    """A log of the turn's pump of about so many tokens of the engine's own."""
    lines = log(turn, 2 * OUTPUT_TOKENS).splitlines(keepends=True)
    size = len(await tokens(client, {"model": "smollm2", "prompt": "".join(lines)}))
    return "".join(lines[: len(lines) * OUTPUT_TOKENS // size])


async def block_tokens(client: httpx.AsyncClient) -> int:
    """How many tokens a block of the engine's cache has."""
    found = re.search(r'vllm:cache_config_info\{.*block_size="(\d+)"', (await client.get("/metrics")).text)
    assert found is not None
    return int(found[1])


async def chat(url: str, client: httpx.AsyncClient) -> None:
    """The session, as a client has it: whatever was sent on, it keeps everything and always sends all of it."""
    messages: list[Any] = [{"role": "system", "content": "You look after pumps. Answer in one short sentence."}]
    async with httpx.AsyncClient(base_url=url, timeout=600, headers={"authorization": "Bearer sk-agent"}) as gateway:
        for at in range(TURNS):
            messages += wire_turn(at, await output(client, at))[:3]
            asked = {"model": "smollm2", "messages": messages, "max_tokens": 8, "temperature": 0}
            answer = await gateway.post("/v1/chat/completions", json=asked)
            assert answer.status_code == 200, f"turn {at}: {answer.text}"
            messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})


def breaks(prompts: list[list[Any]]) -> int:
    """How often a prompt does not begin with the one before."""
    return sum(later[: len(earlier)] != earlier for earlier, later in pairwise(prompts))


async def test_the_prefix_stays_cached_as_predicted_and_nothing_is_refused(
    engine: Engine, tmp_path: Path, tell: list[str]
) -> None:
    async with (
        hop(engine.url) as passing,
        serving(passing.url, tmp_path) as gateway,
        httpx.AsyncClient(base_url=engine.url, timeout=600) as client,
    ):
        await chat(f"http://127.0.0.1:{gateway.port}", client)
        assert "kvgate_context_violations_total" not in await counted(gateway)
        block = await block_tokens(client)
        cache, largest, computed = PrefixCache(block), 0, 0
        assert len(passing.calls) == TURNS
        for at, call in enumerate(passing.calls):
            prompt = await tokens(client, call.asked)
            predicted = cache.serve(prompt, array("I"))
            cached, size = _usage(call)
            assert size == len(prompt)
            assert abs(cached - predicted) <= block, f"turn {at}: {cached} cached, {predicted} predicted"
            if at >= FIRST_CALLS:
                largest = max(largest, size)
            computed += size - cached
    broken = breaks([call.asked["messages"] for call in passing.calls])
    assert broken <= 4 and largest <= TRIGGER_TOKENS
    tell.append(
        f"forty turns: {broken} breaks, at most {largest} tokens sent, {computed} computed; cached_tokens as predicted "
        f"within a block of {block}"
    )


def _usage(call: Passed) -> tuple[int, int]:
    assert call.status == 200
    usage = call.answered["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"] or 0, usage["prompt_tokens"]
