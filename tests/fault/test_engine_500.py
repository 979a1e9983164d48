"""An engine that answers with a server error: its words are its own and do not reach the client."""

import itertools

from gateway.embedded import EmbeddedServer
from loadtest import faults
from tests.house import house


async def test_another_engine_answers(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        running.engines["one"].emulator.faults = faults.parse_all("status=code:500")
        answers = [await running.chat(f"call {number}") for number in range(4)]
        assert [answer.status_code for answer in answers] == [200] * 4
        await running.nothing_left()
        assert await running.charged() == sum(answer.json()["usage"]["total_tokens"] for answer in answers)
        assert await running.metric("kvgate_attempts_total", replica="one", outcome="failure") >= 1
        assert await running.metric("kvgate_attempts_total", replica="two", outcome="success") == 4


async def test_with_no_other_it_is_a_502_in_our_words(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        answer = await running.chat(stream=True, kvgate_fault="status=code:500")
        error = answer.json()["error"]
        assert (answer.status_code, error["code"], error["type"]) == (502, "engine_error", "server_error")
        assert error["message"] == "The engine failed to answer."
        await running.nothing_left()
        assert await running.charged() == 0
        assert await running.metric("kvgate_requests_total", outcome="engine_failed") == 1
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 2


async def test_engines_that_keep_failing_are_taken_out_down_to_the_floor(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        running.engines["one"].emulator.faults = faults.parse_all("status=code:500")
        calls = itertools.count()
        while await running.metric("kvgate_replica_up", replica="one"):
            assert (await running.chat(f"call {next(calls)}")).status_code == 200
        before = await running.metric("kvgate_attempts_total", replica="one")
        assert [(await running.chat(f"then {number}")).status_code for number in range(5)] == [200] * 5
        assert await running.metric("kvgate_attempts_total", replica="one") == before
        await running.nothing_left()
