"""The store's primary dies and another server takes its place: calls go on, and what they cost is written there."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from tests.house import house, until
from tests.integration.test_store import pid_of
from tests.integration.test_store_topology import watched


async def test_calls_go_on_and_the_new_primary_knows_what_was_used(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        watcher, _ = await stack.enter_async_context(watched(tmp_path))
        here = await stack.enter_async_context(house(f"redis+sentinel://127.0.0.1:{watcher}/main/0"))
        before = await here.chat("before")
        await here.quiet()
        await here.gateway.store.command(
            "WAIT", "1", "20000"
        )  # what the replica has not heard of is lost with the first
        os.kill(await pid_of(here.gateway.store), signal.SIGKILL)
        await until(lambda: not here.gateway.store.available)
        meanwhile = [await here.chat(f"call {number}", stream=True) for number in range(3)]
        assert [answer.status_code for answer in meanwhile] == [200] * 3
        assert {answer.headers["x-kvgate-budget"] for answer in meanwhile} == {"local"}
        async with asyncio.timeout(60):
            await until(lambda: here.gateway.store.available)
            after = await here.chat("after")
            while "x-kvgate-budget" in after.headers:  # connected to a primary that is none yet
                after = await here.chat("after")
        await here.nothing_left()
        assert await here.metric("kvgate_settlements_late_total", result="lost") == 0
        assert await here.metric("kvgate_store_available") == 1
        assert await here.charged_as_counted() > before.json()["usage"]["total_tokens"]
        assert await here.metric("kvgate_requests_total", outcome="ok") == await here.metric("kvgate_requests_total")
