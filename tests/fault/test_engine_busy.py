"""An engine that refuses for load (503): another may have room; if none has, the client is told when to come back."""

from gateway.embedded import EmbeddedServer
from loadtest import faults
from tests.house import house


async def test_another_engine_takes_the_call_and_nobody_is_blamed(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        running.engines["one"].emulator.faults = faults.parse_all("status=code:503")
        answers = [await running.chat(f"call {number}") for number in range(20)]
        assert {answer.status_code for answer in answers} == {200}
        await running.nothing_left()
        assert await running.charged_as_counted() == sum(answer.json()["usage"]["total_tokens"] for answer in answers)
        assert await running.metric("kvgate_requests_total", outcome="ok") == 20
        assert await running.metric("kvgate_attempts_total", replica="one", outcome="neutral") >= 1
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 0
        assert await running.metric("kvgate_replica_up", replica="one") == 1


async def test_all_busy_is_a_503_that_says_when_to_try_again(valkey: EmbeddedServer) -> None:
    async with house(valkey.url) as running:
        answer = await running.chat(kvgate_fault="status=code:503")
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "engine_busy")
        assert answer.headers["retry-after"] == "1"
        await running.nothing_left()
        assert await running.charged() == 0
        assert await running.metric("kvgate_requests_total", outcome="engine_failed") == 1
        assert await running.metric("kvgate_attempts_total", outcome="neutral") == 2
        assert await running.metric("kvgate_attempts_total") == 2
