"""The clients of a soak: conversations that grow turn by turn, now and then left in the middle.

Rule: what a client says follows from its number. Before anything is measured, what a gateway remembers is filled to its
bounds: until then its memory grows by right. What is said afterwards are the same few hundred texts in ever new
sessions, so that what is remembered stays much as it is.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

import aiohttp

from bench.soak_house import KEY
from gateway.tasks import Tasks

LEAVES: Final = 0.02
"""The share of clients that leave in the middle of their stream."""
MESSAGES: Final = 200
"""Of a turn that is there to be counted."""
EDITED: Final = 3_000
"""Conversations whose middle is left out: as many sessions as are remembered, with an edit each."""
SIZES: Final = 10_000
"""Conversations of two turns of every size: for each pool 4,096 pairs of sizes are remembered."""

LONG: Final = "words " * 2_100

Message = Mapping[str, object]


class Clients:
    """So many clients of the gateway at `url`. `outcomes` are how their calls ended."""

    def __init__(self, count: int, url: str, http: aiohttp.ClientSession) -> None:
        self._count = count
        self._url = url
        self._http = http
        self._driving = Tasks()
        self.outcomes: Counter[str] = Counter()

    @property
    def calls(self) -> int:
        return sum(self.outcomes.values())

    async def fill(self, messages: int) -> None:
        """Make so many different messages known, sessions with edits, and calls of every size."""
        for count, made in ((messages // MESSAGES // 2 + 1, _many), (EDITED, _edited), (SIZES, _sized)):
            left = iter(range(count))
            await asyncio.gather(*(self._take(left, number, made) for number in range(self._count)))

    def talk(self, until: float, interval_seconds: float = 0.0) -> None:
        """Begin to talk until then (monotonic), each client once in that time, or as soon as it can."""
        for number in range(self._count):
            self._driving.start(self._talk(number, until, interval_seconds), name=f"client {number}")

    async def ended(self) -> None:
        """Once all have stopped talking."""
        await self._driving.drain(60.0)

    async def _take(self, left: Iterator[int], number: int, made: Callable[[random.Random], Sequence[Message]]) -> None:
        for each in left:
            rng = random.Random(f"{number} {each}")
            first, most = made(rng), rng.choice((1, 64))  # replies so short that their calls are prefill-heavy, too
            await self._turn(rng, first, leaves=False, most=most)
            await self._turn(rng, [*first, *made(rng)], leaves=False, most=most)

    async def _talk(self, number: int, until: float, interval_seconds: float) -> None:
        rng = random.Random(f"{number} {until}")
        due = time.monotonic() + rng.random() * interval_seconds
        while due < until:
            session = f"soak-{rng.getrandbits(64):x}"
            messages: list[Message] = [{"role": "user", "content": "a conversation"}]
            for _ in range(rng.randint(1, 8)):
                await asyncio.sleep(due - time.monotonic())
                due = max(time.monotonic(), due + interval_seconds * rng.uniform(0.5, 1.5))
                if due >= until:
                    return
                self.outcomes[await self._turn(rng, messages, leaves=rng.random() < LEAVES, session=session)] += 1
                messages.append({"role": "assistant", "content": "words " * rng.randint(1, 100)})
                messages.append({"role": "user", "content": "more " * rng.randint(1, 300)})

    async def _turn(
        self, rng: random.Random, messages: Sequence[Message], *, leaves: bool, session: str = "", most: int = 64
    ) -> str:
        stream, tokens = rng.random() < 0.8, rng.randint(min(4, most), most)
        body = {"model": "demo", "messages": messages, "stream": stream, "max_tokens": tokens}
        headers = {"api-key": KEY} | ({"x-session-id": session} if session else {})
        try:
            async with self._http.post(f"{self._url}/v1/chat/completions", json=body, headers=headers) as answer:
                if answer.status != 200 or not stream:
                    await answer.read()
                    return str(answer.status)
                return await read_stream(answer, leaves)
        except (aiohttp.ClientError, TimeoutError) as error:
            return type(error).__name__


def _many(rng: random.Random) -> Sequence[Message]:
    """Many short messages, in two turns above the mark from which on each is counted."""
    roles = ("user", "assistant") * (MESSAGES // 2)
    return [{"role": role, "content": f"a word or two and {rng.random()}"} for role in (*roles, "user")]


def _edited(rng: random.Random) -> Sequence[Message]:
    """A conversation above the mark from which on a window leaves turns out."""
    task = {"role": "user", "content": f"a task, {rng.random()}"}
    turns = [{"role": role, "content": text} for _ in range(2) for role, text in (("assistant", LONG), ("user", "on"))]
    return [task, *turns]


def _sized(rng: random.Random) -> Sequence[Message]:
    """A prompt of any size up to 3,800 tokens, small ones as often as large ones of the same ratio."""
    return [{"role": "user", "content": "more " * int(2 ** rng.uniform(2, 11.9)) + str(rng.random())}]


async def read_stream(answer: aiohttp.ClientResponse, leaves: bool) -> str:
    """How a stream ended: `done`, `error event`, `left` by the client, or `silent`, which must not happen."""
    seen = b""
    async for data in answer.content.iter_any():
        seen = (seen + data)[-4096:]
        if leaves:
            answer.close()
            return "left"
    if b"[DONE]" in seen:
        return "done"
    return "error event" if b'"error"' in seen else "silent"
