"""What a real model still answers of what it was told, with each policy and without.

Rule: told, not judged. Where the model does not find six in ten facts with everything before its eyes, nothing that it
says about the policies means anything, and the figures say so.
"""

import json
from typing import Any, Final

import httpx
import pytest

from gateway.app import Gateway
from tests.vllm.conftest import counted

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800)]

TIERS: Final = ("plain", "trim", "window", "facts")
STATIONS: Final = ("Amsel", "Birke", "Cedar", "Dahlia", "Erle", "Falke", "Ginster", "Hasel", "Iltis", "Juniper")
"""Names, for so small a model mixes numbers up."""
GAUGES: Final = 4
ENOUGH: Final = 0.6


def code(station: str) -> str:
    """A number of four digits that no other station has."""
    return str(1_000 + (STATIONS.index(station) + 3) * 7919 % 9_000)


def told() -> list[Any]:
    """A session in which a tool told the code of every station, in one line of five."""
    messages: list[Any] = [{"role": "system", "content": "You answer questions from what was read before."}]
    for at, station in enumerate(STATIONS):
        lines = [f"gauge {gauge} of station {station} shows {gauge}.{at} bar, as it should" for gauge in range(GAUGES)]
        lines.insert((3 * at + 1) % (GAUGES + 1), f"The access code of station {station} is {code(station)}.")
        function = {"name": "read", "arguments": json.dumps({"station": station})}
        messages += [
            {"role": "user", "content": f"Read the sheet of station {station}."},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": station, "type": "function", "function": function}],
            },
            {"role": "tool", "tool_call_id": station, "content": "\n".join(lines)},
            {"role": "assistant", "content": f"I have read the sheet of station {station}."},
        ]
    return messages


async def answers(client: httpx.AsyncClient, tier: str) -> tuple[int, int]:
    """How many of the codes a tier's model still tells, and the tokens of the last prompt."""
    right, size = 0, 0
    for station in STATIONS:
        question = {"role": "user", "content": f"What is the access code of station {station}?"}
        answer = await client.post(
            "/v1/chat/completions",
            headers={"authorization": f"Bearer sk-{tier}"},
            json={"model": "smollm2", "messages": [*told(), question], "max_tokens": 24, "temperature": 0},
        )
        assert answer.status_code == 200, answer.text
        body = answer.json()
        right += code(station) in body["choices"][0]["message"]["content"]
        size = body["usage"]["prompt_tokens"]
    return right, size


async def test_what_a_model_still_answers(gateway: Gateway, tell: list[str]) -> None:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{gateway.port}", timeout=600) as client:
        found = {tier: await answers(client, tier) for tier in TIERS}
    assert "kvgate_context_violations_total" not in await counted(gateway)
    assert all(found[tier][1] < found["plain"][1] for tier in TIERS[1:])
    right, size = found["plain"]
    if right < ENOUGH * len(STATIONS):
        tell.append(f"kept: inconclusive; of {len(STATIONS)} codes the model finds {right} in all {size} tokens")
        return
    shown = (f"{tier} {found[tier][0]} in {found[tier][1]} tokens" for tier in TIERS)
    tell.append(f"kept: of {len(STATIONS)} codes the model tells {', '.join(shown)}")
