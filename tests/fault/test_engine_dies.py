"""An engine process that goes away in the middle of a stream, and comes back."""

import itertools
import json
from typing import Any

from gateway.embedded import EmbeddedServer
from loadtest.engine import serve
from tests.house import FAST, events, house


def watched(data: dict[str, Any]) -> None:
    data["routing"] |= {"probe_interval": "20ms", "affinity_slack": "0s"}


async def test_the_client_is_told_the_next_call_goes_elsewhere_and_the_engine_may_return(
    valkey: EmbeddedServer,
) -> None:
    async with house(valkey.url, change=watched) as running:
        answer = await running.chat(stream=True, kvgate_fault="die=after:3")
        *content, last = events(answer.content)
        assert len(content) == 1 + 3
        assert json.loads(last)["error"]["code"] == "engine_broke_off"
        await running.quiet()
        assert await running.metric("kvgate_requests_total", outcome="broken") == 1
        assert await running.metric("kvgate_tokens_total", kind="decode") == 3
        assert await running.charged_as_counted() > 3
        (dead,) = [name for name, engine in running.engines.items() if engine.dead.is_set()]

        assert [(await running.chat(f"again {number}")).status_code for number in range(3)] == [200] * 3
        while await running.metric("kvgate_replica_up", replica=dead):
            pass
        before = await running.metric("kvgate_attempts_total", replica=dead)
        assert (await running.chat("elsewhere")).status_code == 200
        assert await running.metric("kvgate_attempts_total", replica=dead) == before
        await running.nothing_left()

        async with serve(FAST.model_copy(update={"port": running.engines[dead].port})):
            while not await running.metric("kvgate_replica_up", replica=dead):
                pass
            calls = itertools.count()
            while await running.metric("kvgate_attempts_total", replica=dead, outcome="success") == 0:
                assert (await running.chat(f"back again {next(calls)}")).status_code == 200
            await running.nothing_left()
