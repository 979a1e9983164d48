"""The gateway's KV bytes against vLLM's own estimate of what it reads.

vLLM's figure holds weights and activations too (vllm/v1/metrics/perf.py). They are the same in every step of one kind,
so they cancel in a difference of differences: what n more tokens cost after a long prompt, less what they cost after a
short one, is KV alone, and is the same to the byte. With the weights of every step the whole estimate is within 10 %
of vLLM's for a reply of 24 tokens to a cached prompt. What differs: vLLM computes a step ahead, so that it has one more
than there are tokens in a reply when it finds the end, and it counts activations, which show in uncached prompts.
"""

import secrets
from dataclasses import dataclass, replace

import httpx
import pytest

from budgets.cost import read_bytes
from config.catalogue import model
from gateway.app import Gateway
from tests.vllm.conftest import counted
from tests.vllm.engine import READ_BYTES, Engine

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

SHORT, LONG = 20, 300
"""Repetitions of the prompt's sentence."""
FEW, MANY = 4, 24
"""Tokens generated."""


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes of one call: by vLLM's counter, by ours."""

    engine: float
    gateway: float
    prompt_tokens: int = 0
    cached_tokens: int = 0

    def __sub__(self, other: "Read") -> "Read":
        return Read(self.engine - other.engine, self.gateway - other.gateway)

    def whole(self, tokens: int) -> int:
        """All that a lone call reads by our closed form: weights of each step, and KV."""
        entry = model("smollm2-135m")
        assert entry is not None
        return read_bytes(entry.geometry, self.prompt_tokens, self.cached_tokens, tokens)


async def now(gateway: Gateway, engine: Engine) -> Read:
    return Read((await engine.idle())[READ_BYTES], (await counted(gateway)).get("kvgate_kv_read_bytes_total", 0))


async def read(gateway: Gateway, engine: Engine, text: str, tokens: int) -> Read:
    """What one call reads; of one whose prompt's blocks are cached, the prefill is the same every time."""
    before = await now(gateway, engine)
    async with httpx.AsyncClient(timeout=600) as client:
        reply = await client.post(
            f"http://127.0.0.1:{gateway.port}/v1/chat/completions",
            headers={"authorization": "Bearer sk-plain"},
            json={
                "model": "smollm2",
                "messages": [{"role": "user", "content": text}],
                "max_tokens": tokens,
                "ignore_eos": True,
            },
        )
    usage = reply.json()["usage"]
    assert usage["completion_tokens"] == tokens
    cached = (usage["prompt_tokens_details"] or {}).get("cached_tokens") or 0
    return replace(await now(gateway, engine) - before, prompt_tokens=usage["prompt_tokens"], cached_tokens=cached)


async def test_kv_bytes_against_the_engines_own_estimate(gateway: Gateway, engine: Engine, tell: list[str]) -> None:
    reads: dict[tuple[int, int], Read] = {}
    for words in (SHORT, LONG):
        text = "the pump is on " * words
        await read(gateway, engine, text, FEW)  # leaves the blocks cached
        for tokens in (FEW, MANY):
            seen = reads[words, tokens] = await read(gateway, engine, text, tokens)
            tell.append(
                f"read bytes: {words:3} x 4 words, {tokens:2} tokens: vLLM {seen.engine:13,.0f} in all, "
                f"kvgate {seen.gateway:11,.0f} of KV"
            )
    kv = (reads[LONG, MANY] - reads[LONG, FEW]) - (reads[SHORT, MANY] - reads[SHORT, FEW])
    tell.append(f"read bytes: KV alone (difference of differences): vLLM {kv.engine:,.0f}, kvgate {kv.gateway:,.0f}")
    assert kv.engine == kv.gateway > 0


@pytest.mark.parametrize("words", [SHORT, LONG])
@pytest.mark.parametrize("tokens", [FEW, MANY])
async def test_all_that_is_read_is_within_a_tenth(
    gateway: Gateway, engine: Engine, tell: list[str], words: int, tokens: int
) -> None:
    text = "the valve is off " * words
    await read(gateway, engine, text, FEW)  # leaves the blocks cached
    seen = await read(gateway, engine, text, tokens)
    steps, ahead = (seen.whole(each) / seen.engine for each in (tokens, tokens + 1))
    tell.append(
        f"read bytes: {words:3} x 4 words, {tokens:2} tokens, weights and all: {steps:.4f} of vLLM's estimate, "
        f"{ahead:.4f} with the step that it computes ahead"
    )
    assert 0.9 < ahead < 1.1
    assert tokens == FEW or 0.9 < steps < 1.1


async def test_what_a_new_prompt_adds_are_its_activations(gateway: Gateway, engine: Engine, tell: list[str]) -> None:
    """In bf16, read by each of 30 layers: four vectors of the model's width and three of its inner one."""
    seen = await read(gateway, engine, f"{secrets.token_hex(4)}: " + "100 lamps are on " * 100, 1)
    each = (seen.engine - seen.whole(2)) / (seen.prompt_tokens - seen.cached_tokens)
    tell.append(f"read bytes: a token of an uncached prompt adds {each:,.0f} bytes of activations")
    assert each == pytest.approx(2 * 30 * (4 * 576 + 3 * 1_536), rel=0.1)
