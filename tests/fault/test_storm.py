"""Everything at once: hundreds of calls, engines that fail in every way, clients that leave at any moment.

Rule: which call meets what follows from a seed; what is checked holds whatever the order of events was.
"""

import asyncio
import random
from typing import Any

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from loadtest import faults
from tests.house import KEY, House, events, house

CALLS = 200
FAULTS = "refuse=0.1 status=0.1,code:500 cut=0.2,after:3 error=0.1,after:2 malformed=0.1,after:1 stall=0.05,after:2"


def impatient(data: dict[str, Any]) -> None:
    data["routing"] |= {"idle_timeout": "200ms", "first_token_timeout": "2s", "affinity_slack": "0s"}
    data["pools"]["any"]["max_concurrent"] = 20


async def call(running: House, number: int, chance: random.Random) -> str:
    """One call and how it ended for its client. A third of the clients leave early."""
    patience = chance.random() * 0.2 if chance.random() < 1 / 3 else None
    stream = chance.random() < 0.7
    try:
        async with asyncio.timeout(patience):
            answer = await running.chat(f"call {number}", stream=stream, max_tokens=chance.randint(1, 30))
    except TimeoutError:
        return "left"
    except httpx.HTTPError as error:
        return type(error).__name__
    if answer.status_code != 200:
        return str(answer.json()["error"]["code"])
    if not stream:
        return "whole"
    frames = events(answer.content)
    told = any(frame.startswith('{"error"') for frame in frames[-2:])
    return "told" if told else "done" if frames[-1] == "[DONE]" else "silent"


@pytest.mark.parametrize("seed", [1, 2])
async def test_every_client_is_told_and_nothing_is_left(valkey: EmbeddedServer, seed: int) -> None:
    chance = random.Random(seed)
    pools = {"any": ["one", "two", "three", "four"]}
    async with house(valkey.url, pools, impatient) as running:
        running.http.headers["authorization"] = f"Bearer {KEY}"
        for engine in running.engines.values():
            engine.emulator.faults = faults.parse_all(FAULTS)
        waves = [
            await asyncio.gather(*(call(running, 50 * wave + number, chance) for number in range(50)))
            for wave in range(CALLS // 50)
        ]
        ended = [how for wave in waves for how in wave]
        told = {"engine_unreachable", "engine_error", "engine_broke_off", "engine_timeout", "engines_saturated"}
        assert set(ended) <= {"left", "whole", "done", "told", "no_replica"} | told
        assert ended.count("done") > 20 and ended.count("left") > 10 and ended.count("told") > 10
        await running.nothing_left()
        counted = sum([await running.metric("kvgate_tokens_total", kind=k) for k in ("prefill", "cached", "decode")])
        assert await running.charged() == counted, "what the metrics show is what the ledger charged"
        assert await running.metric("kvgate_requests_total") <= CALLS
        assert await running.metric("kvgate_task_failures_total") == 0
        assert await running.metric("kvgate_store_unwritten_total") == 0
