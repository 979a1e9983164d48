"""The gateway's KV bytes against vLLM's own estimate of what it reads.

vLLM's figure holds weights and activations too (vllm/v1/metrics/perf.py). They are the same in every step of one kind,
so they cancel in a difference of differences: what n more tokens cost after a long prompt, less what they cost after a
short one, is KV alone.
"""

from dataclasses import dataclass

import httpx
import pytest

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

    def __sub__(self, other: "Read") -> "Read":
        return Read(self.engine - other.engine, self.gateway - other.gateway)


async def now(gateway: Gateway, engine: Engine) -> Read:
    return Read((await engine.idle())[READ_BYTES], (await counted(gateway)).get("kvgate_kv_read_bytes_total", 0))


async def read(gateway: Gateway, engine: Engine, text: str, tokens: int) -> Read:
    """What one call reads whose prompt's blocks are cached, so that its prefill is the same every time."""
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
    assert reply.json()["usage"]["completion_tokens"] == tokens
    return await now(gateway, engine) - before


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
