"""The store's primary dies and another server takes its place: calls go on, and what they cost is written there."""

import asyncio
import os
import signal
from contextlib import AsyncExitStack
from pathlib import Path

from tests.house import house, until
from tests.integration.test_store import connected, pid_of
from tests.integration.test_store_topology import free_port, server, until_in, until_up


async def test_calls_go_on_and_the_new_primary_knows_what_was_used(tmp_path: Path) -> None:
    first, second, watcher = (free_port() for _ in range(3))
    sentinel = (
        f"sentinel monitor main 127.0.0.1 {first} 1\n"
        "sentinel down-after-milliseconds main 300\n"
        "sentinel failover-timeout main 5000\n"
    )
    async with AsyncExitStack() as stack:
        stack.enter_context(server(tmp_path / "a", first, "--repl-diskless-sync-delay", "0"))
        await until_up(first)
        stack.enter_context(server(tmp_path / "b", second, "--replicaof", f"127.0.0.1 {first}"))
        await until_up(second)
        replica = await stack.enter_async_context(connected(f"redis://127.0.0.1:{second}"))
        await until_in(replica, "replication", b"master_link_status:up")
        stack.enter_context(server(tmp_path / "s", watcher, "--sentinel", config=sentinel))
        await until_up(watcher)
        asked = await stack.enter_async_context(connected(f"redis://127.0.0.1:{watcher}"))
        await until_in(asked, "sentinel", b"slaves=1")

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
