"""Two gateways, a quota of tokens, and twice as much demand as it holds, in lengths that real services have seen."""

import asyncio
import csv
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from bench import kept
from gateway.embedded import EmbeddedServer
from tests.house import KEY, Change, House, gateway
from tests.unit.tree import ROOT
from tests.upstream import CHUNKED, DONE, END, Peer, chunk, frame, reply, upstream

AT_ONCE = 32
MOST_TOKENS = 700
BURST = 32
"""Frames that an engine sends before it looks up. A step is 64 at least."""


@dataclass(slots=True)
class Asked:
    """A call with the lengths that it turns out to have. `read` lets its engine go on with a stream."""

    prompt_tokens: int
    decode_tokens: int
    read: asyncio.Queue[int] = field(default_factory=asyncio.Queue)

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.decode_tokens

    @property
    def usage(self) -> dict[str, int]:
        return {"prompt_tokens": self.prompt_tokens, "completion_tokens": self.decode_tokens}


def trace(name: str) -> Iterator[Asked]:
    with (ROOT / "bench" / "traces" / f"azure_2023_{name}.csv").open(newline="") as file:
        for row in csv.DictReader(file):
            yield Asked(int(row["ContextTokens"]), int(row["GeneratedTokens"]))


class Demand:
    """The calls of a trace and the engine that answers them. A token has four bytes, the first are a number."""

    def __init__(self, name: str) -> None:
        self.calls = list(trace(name))
        self.limit = sum(call.total_tokens for call in self.calls) // 2

    def content(self, call: Asked) -> str:
        return f"{self.calls.index(call):08d}".ljust(4 * call.prompt_tokens, "-")

    async def engine(self, peer: Peer) -> None:
        body = msgspec.json.decode(peer.request.body)
        call = self.calls[int(body["messages"][0]["content"][:8])]
        if body.get("stream"):
            await self._streams(call, peer)
            return
        answer = {"choices": [{"index": 0, "message": {"content": "x"}, "finish_reason": "stop"}], "usage": call.usage}
        await peer.send(reply(200, msgspec.json.encode(answer)))

    async def _streams(self, call: Asked, peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("")))
        for sent in range(0, call.decode_tokens, BURST):
            tokens = min(BURST, call.decode_tokens - sent)
            await peer.send(*[chunk(frame("w"))] * tokens)
            while not peer.gone.is_set() and await call.read.get() < sent + tokens:
                pass
        await peer.send(chunk(frame("", finish="stop")), chunk(frame(usage=call.usage)), chunk(DONE), END)

    async def whole(self, house: House, call: Asked) -> int:
        answer = await house.chat(self.content(call), max_tokens=MOST_TOKENS)
        return answer.status_code

    async def stream(self, house: House, call: Asked) -> int:
        """Reads frames and lets the engine go on when the gateway has heard from its store about all of them."""
        body = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": self.content(call)}]}
        headers, frames, last = {"authorization": f"Bearer {KEY}"}, -1, ""
        async with house.http.stream("POST", "/chat/completions", json=body, headers=headers) as answer:
            async for line in answer.aiter_lines():
                if '"w"' in line:
                    frames += 1 if frames >= 0 else 2
                    if frames % BURST == 0 or frames == call.decode_tokens:
                        await house.gateway.store.command("TIME")
                        call.read.put_nowait(frames)
                last = line or last
            if answer.status_code == 200 and "[DONE]" in last and frames < call.decode_tokens:
                call.read.put_nowait(call.decode_tokens)
        return answer.status_code

    async def all_of_it(self, gateways: tuple[House, House], *, stream: bool) -> None:
        """Every call is asked again as long as any of them passes."""
        places, ask = asyncio.Semaphore(AT_ONCE), self.stream if stream else self.whole

        async def asked(number: int, call: Asked) -> int:
            async with places:
                return await ask(gateways[number % 2], call)

        waiting = self.calls
        while waiting:
            statuses = await asyncio.gather(*(asked(number, call) for number, call in enumerate(waiting)))
            assert set(statuses) <= {200, 429}
            refused = [call for call, status in zip(waiting, statuses, strict=True) if status == 429]
            if len(refused) == len(waiting):
                return
            waiting = refused


def quota(limit: int, **fields: object) -> Change:
    def change(data: dict[str, Any]) -> None:
        tier = data["tiers"]["standard"]
        tier["budgets"] = [{"name": "quota", "dimension": "total_tokens", "amount": limit, "every": "month"} | fields]
        tier["max_tokens"] = {"limit": MOST_TOKENS}

    return change


@asynccontextmanager
async def two(valkey: EmbeddedServer, demand: Demand, change: Change) -> AsyncIterator[tuple[House, House]]:
    async with upstream(demand.engine) as up:
        urls = {"any": {"one": up.url}}
        async with (
            gateway(urls, valkey.url, change) as first,
            gateway(urls, valkey.url, change, flush=False) as other,
        ):
            yield first, other


async def settled(running: House) -> float:
    await running.nothing_left()
    return sum((await kept.in_use(running.gateway.store)).values()) / 1e6


@pytest.mark.parametrize("name", ["conv", "code"])
async def test_a_strict_quota_is_used_to_its_end_and_never_above(valkey: EmbeddedServer, name: str) -> None:
    demand = Demand(name)
    async with two(valkey, demand, quota(demand.limit, hardness="strict")) as gateways:
        await demand.all_of_it(gateways, stream=False)
        await gateways[0].quiet()
        await gateways[1].nothing_left()
        assert 0.95 * demand.limit <= await settled(gateways[0]) <= demand.limit


@pytest.mark.parametrize("name", ["conv", "code"])
async def test_an_elastic_quota_ends_within_a_step_of_each_call_at_once(valkey: EmbeddedServer, name: str) -> None:
    demand = Demand(name)
    step = max(64, max(call.decode_tokens for call in demand.calls))
    async with two(valkey, demand, quota(demand.limit, on_exceed="stop")) as gateways:
        await demand.all_of_it(gateways, stream=True)
        await gateways[0].quiet()
        await gateways[1].nothing_left()
        assert 0.95 * demand.limit <= await settled(gateways[0]) <= demand.limit + AT_ONCE * step
