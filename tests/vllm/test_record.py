"""A session whose older turns the engine itself records ahead of need, behind the prefix that it holds.

What the model writes is told by its shape alone. So small a one seldom keeps to a form: its first record is asked for
as it is, later ones with a pattern that the engine holds it to. What matters here is that the engine computes the
question and not the conversation, that the record is stored and used, and that no prompt is refused.
"""

import asyncio
import re
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from bench.prefix_cache import PrefixCache
from gateway.app import Gateway
from policies import record
from tests.vllm.conftest import counted, serving
from tests.vllm.engine import Engine
from tests.vllm.hop import Passed, hop
from tests.vllm.test_forty_turns import block_tokens, tokens

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TURNS: Final = 10
AUTH: Final = {"authorization": "Bearer sk-record"}
WORDS: Final = "[A-Za-z0-9 ,./]"
FORM: Final = "\n".join(f"{name}\n{WORDS}{{12,40}}" for name in record.SECTIONS)
"""What later records are held to: the five headings, a line under each."""


def question(at: int) -> str:
    """About 130 of the engine's tokens."""
    valves = " ".join(
        f"Valve {valve} of pump {at} is in /srv/pumps/{at}/valve{valve}.conf and open." for valve in range(5)
    )
    return f"{valves} Is pump {at} all right?"


def asks_for_a_record(asked: dict[str, Any]) -> bool:
    return record.ASKED in str(asked["messages"][-1]["content"])


def held_to_the_form(asked: dict[str, Any]) -> dict[str, Any]:
    return asked | {"structured_outputs": {"regex": FORM}} if asks_for_a_record(asked) else asked


async def written(gateway: Gateway) -> None:
    """Until no record is being written."""
    while gateway.summaries:  # noqa: ASYNC110
        await asyncio.sleep(0.2)


async def test_the_engine_records_what_it_holds_and_the_record_takes_its_place(
    engine: Engine, tmp_path: Path, tell: list[str]
) -> None:
    async with (
        hop(engine.url) as passing,
        serving(passing.url, tmp_path) as gateway,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}", timeout=600, headers=AUTH) as client,
        httpx.AsyncClient(base_url=engine.url, timeout=600) as direct,
    ):
        messages: list[Any] = [{"role": "system", "content": "You look after pumps. Answer in a word."}]
        reports = []
        for at in range(TURNS):
            messages.append({"role": "user", "content": question(at)})
            asked = {"model": "smollm2", "messages": messages, "max_tokens": 4, "temperature": 0}
            answer = await client.post("/v1/chat/completions", json=asked)
            assert answer.status_code == 200, f"turn {at}: {answer.text}"
            messages.append({"role": "assistant", "content": answer.json()["choices"][0]["message"]["content"]})
            reports.append(answer.headers["x-kvgate-context"])
            await written(gateway)
            if any(map(asks_for_a_record, (call.asked for call in passing.calls))):
                passing.change = held_to_the_form
        values = await counted(gateway)
        await _is_as_predicted(passing.calls, direct, tell)
        (handle,) = set(re.findall(r"kvt_[a-z2-7]{16}", passing.calls[-1].asked["messages"][1]["content"]))
        kept = await client.get(f"/v1/artifacts/{handle}")
        assert kept.status_code == 200 and question(1) in kept.json()["content"]
    assert all(call.status == 200 for call in passing.calls), "no prompt was too long, no question refused"
    assert "kvgate_context_violations_total" not in values
    assert values["kvgate_summaries_total made"] >= 1 and values["kvgate_summaries_total used"] >= 1
    assert any("summarized=" in report for report in reports)
    _stands_until_the_next(passing.calls)


async def _is_as_predicted(calls: list[Passed], direct: httpx.AsyncClient, tell: list[str]) -> None:
    """`cached_tokens` of every call within a block, above all of those that ask for a record."""
    block = await block_tokens(direct)
    cache = PrefixCache(block)
    for number, call in enumerate(calls):
        prompt = await tokens(direct, call.asked)
        predicted = cache.serve(prompt, array("I"))
        usage, choice = call.answered["usage"], call.answered["choices"][0]
        cached = usage["prompt_tokens_details"]["cached_tokens"] or 0
        assert abs(cached - predicted) <= block, f"call {number}: {cached} cached, {predicted} predicted"
        if asks_for_a_record(call.asked):
            behind = calls[number - 1].asked["messages"]
            assert call.asked["messages"][:-1] == behind[: len(call.asked["messages"]) - 1], "the very same messages"
            assert cached > block
            held = "held to the form" if "structured_outputs" in call.asked else "alone"
            text = choice["message"]["content"]
            tell.append(
                f"record, {held}: {len(prompt)} tokens asked, {cached} of them cached; {usage['completion_tokens']} "
                f"written under {len(record.sections(text))} of 5 headings, {choice['finish_reason']}, "
                f"{'taken' if record.read(text) and choice['finish_reason'] == 'stop' else 'not taken'}"
            )


def _stands_until_the_next(calls: list[Passed]) -> None:
    """From its first use on the record is part of a prefix that only the next record breaks."""
    prompts = [call.asked["messages"] for call in calls if not asks_for_a_record(call.asked)]
    with_record = [prompt for prompt in prompts if record.BEGIN in prompt[1]["content"]]
    assert len(with_record) >= 2
    for earlier, later in pairwise(with_record):
        same = earlier[1]["content"] == later[1]["content"]
        assert not same or later[: len(earlier)] == earlier
