"""A store that is restarted: its scripts are lost, its data are not."""

import tempfile
from pathlib import Path

from gateway import embedded
from tests.house import house, until


async def test_scripts_are_sent_again_and_budgets_and_sessions_go_on() -> None:
    with tempfile.TemporaryDirectory(prefix="kvgate-") as folder:
        server = embedded.start(Path(folder))
        async with house(server.url) as running:
            assert (await running.chat("before")).status_code == 200
            await running.quiet()
            before = await running.charged()
            assert before > 0
            server.close()
            await until(lambda: not running.gateway.store.available)
            server = embedded.start(Path(folder))
            try:
                await until(lambda: running.gateway.store.available)
                assert await running.charged() == before
                answer = await running.chat("before")
                assert answer.status_code == 200 and "x-kvgate-budget" not in answer.headers
                await running.nothing_left()
                assert await running.charged() == before + answer.json()["usage"]["total_tokens"]
                assert await running.metric("kvgate_sessions_total", found="known") == 1
            finally:
                server.close()


async def test_scripts_that_are_flushed_are_sent_again(valkey: embedded.EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        await running.gateway.store.command("SCRIPT", "FLUSH", "SYNC")
        assert (await running.chat()).status_code == 200
        await running.nothing_left()
        assert await running.metric("kvgate_store_failures_total") == 0
