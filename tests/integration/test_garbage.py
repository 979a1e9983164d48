"""Calls leave nothing for the garbage collector, however they end.

Rule: what a call made is given back as it ends, by counting references. A circle lives until the collector comes by,
with all it holds (bodies, frames), and what it holds meanwhile keeps the allocators' pages in use.
"""

import asyncio
import gc
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import CoroutineType, FrameType
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import House, gateway, house
from tests.upstream import answers, upstream

ROOT = Path(__file__).parents[2]
OURS = ("gateway", "backends", "budgets", "policies", "config")
TIMES = 3

Call = Callable[[House], Awaitable[object]]


def fault(kind: str, **fields: Any) -> Call:
    return lambda house: house.chat(kvgate_fault=kind, **fields)


async def leaves(house: House) -> None:
    """A client that goes away in the middle of its stream."""
    reader, writer = await house.send(stream=True, max_tokens=400, kvgate_fault="stall=after:2")
    await reader.readuntil(b"data: ")
    writer.close()
    with suppress(ConnectionError):
        await writer.wait_closed()


async def comes_once(house: House) -> None:
    """A client that opens a connection for one call."""
    reader, writer = await house.send_raw(b"{", "connection: close", "authorization: Bearer nobody")
    assert await reader.read()
    writer.close()


async def talks(house: House) -> None:
    """A conversation of three turns, the last of which is cut down."""
    messages: list[dict[str, str]] = []
    for words in (10, 400, 900):
        messages.append({"role": "user", "content": "more " * words})
        body = {"model": "demo", "messages": messages, "max_tokens": 8}
        answer = await house.http.post("/chat/completions", json=body, headers={"api-key": "sk-test-acme"})
        assert answer.status_code == 200
        messages.append({"role": "assistant", "content": "words " * 20})


CALLS: dict[str, Call] = {
    "stream": lambda house: house.chat(stream=True),
    "whole": lambda house: house.chat(),
    "longer than expected": lambda house: house.chat(stream=True, max_tokens=600),
    "conversation": talks,
    "engine refuses": fault("refuse"),
    "engine refuses a stream": fault("refuse", stream=True),
    "engine fails": fault("status=code:500", stream=True),
    "engine busy": fault("status=code:503"),
    "engine says no": fault("status=code:400"),
    "stream cut": fault("cut=after:3", stream=True),
    "whole cut": fault("cut=after:3"),
    "error frame": fault("error=after:2", stream=True),
    "malformed frame": fault("malformed=after:2", stream=True),
    "client leaves": leaves,
    "client comes once": comes_once,
    "no such key": lambda house: house.chat(key="sk-nobody"),
    "no such model": lambda house: house.chat(model="other"),
    "too much": lambda house: house.chat("more " * 20_000),
    "no budget": lambda house: house.chat(key="sk-test-zeta"),
    "limits": lambda house: house.http.get("/usage", headers={"api-key": "sk-test-acme"}),
    "models": lambda house: house.http.get("/models", headers={"api-key": "sk-test-acme"}),
}


def varied(data: dict[str, Any]) -> None:
    """A tier whose policies act, and a tenant whose budget is spent at once."""
    tier = data["tiers"]["standard"]
    tier["context"] = {"limit_tokens": "8k", "high_water_tokens": "1k", "low_water_tokens": "500"}
    tier["policies"] = [{"kind": "keep_recent_turns"}]
    data["tiers"]["poor"] = {"budgets": [{"name": "one", "dimension": "requests", "amount": 1, "per": "1000000d"}]}
    data["tenants"]["zeta"]["tier"] = "poor"


@pytest.fixture
async def running(valkey: EmbeddedServer) -> AsyncIterator[House]:
    async with house(valkey.url, change=varied) as started:
        yield started


@pytest.mark.parametrize("name", CALLS)
async def test_a_call_leaves_no_circle(running: House, name: str) -> None:
    call = CALLS[name]
    await call(running)  # what is made once and kept: connections, encodings, joined scripts
    await running.quiet()
    with collected() as found:
        for _ in range(TIMES):
            await call(running)
        await running.quiet()
        await settled()
    assert found == Counter()


async def test_an_engine_that_is_not_there_leaves_no_circle(valkey: EmbeddedServer) -> None:
    async with upstream(answers(b"")) as gone:
        pass
    await leaves_none_behind(valkey, gone.url)


async def test_a_kept_connection_that_was_closed_leaves_no_circle(valkey: EmbeddedServer) -> None:
    """The engine answers, and closes the connection as the next request comes."""
    async with upstream(answers(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")) as up:
        await leaves_none_behind(valkey, up.url)


async def leaves_none_behind(valkey: EmbeddedServer, url: str) -> None:
    async with gateway({"any": {"one": url}}, valkey.url) as house:
        await house.chat()
        with collected() as found:
            for _ in range(TIMES):
                await house.chat(stream=True)
            await house.quiet()
            await settled()
        assert found == Counter()


async def settled() -> None:
    """Let the loop finish what follows the end of a call: connections that close, timers that were cancelled."""
    for _ in range(20):
        await asyncio.sleep(0.005)


@contextmanager
def collected() -> Iterator[Counter[str]]:
    """What of ours only the collector would have found, by type; filled at the end of the block.

    What each of its calls leaves is found once for each. What is found less often was let go by something else
    meanwhile, such as a cache that put an earlier test's settings out.
    """
    found: Counter[str] = Counter()
    gc.collect()
    gc.disable()
    try:
        yield found
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        gc.set_debug(0)
        names = Counter(name for each in gc.garbage if (name := our_name(each)))
        found.update({name: count for name, count in names.items() if count >= TIMES})
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def our_name(each: object) -> str | None:
    """The name of what is an object of ours, or a frame or coroutine of our code; `None` for all else."""
    kind = type(each)
    if kind.__module__.partition(".")[0] in OURS:
        return kind.__qualname__
    code = None
    if isinstance(each, FrameType):
        code = each.f_code
    elif isinstance(each, CoroutineType):
        code = each.cr_code
    if code is None or not Path(code.co_filename).is_relative_to(ROOT):
        return None
    folder = Path(code.co_filename).relative_to(ROOT).parts[0]
    return f"{kind.__name__} {code.co_qualname}" if folder in OURS else None
