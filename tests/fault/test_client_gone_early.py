"""A client that leaves before any header of its answer: the engine is let go, or never bothered."""

from typing import Any

from gateway.embedded import EmbeddedServer
from tests.house import gateway, until
from tests.upstream import stalls_after, upstream


def one_at_a_time(data: dict[str, Any]) -> None:
    data["pools"]["any"]["max_concurrent"] = 1


async def test_the_engine_sees_it_and_the_prompt_is_charged(valkey: EmbeddedServer) -> None:
    async with upstream(stalls_after()) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        _, writer = await house.send(stream=True)
        await up.arrived.wait()
        writer.close()
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.charged() > 0
        assert await house.metric("kvgate_requests_total", outcome="client_gone") == 1
        assert await house.metric("kvgate_tokens_total", kind="decode") == 0
        assert await house.metric("kvgate_attempts_total", outcome="neutral") == 1
        assert await house.metric("kvgate_attempts_total") == 1, "nobody is asked on behalf of a client that left"


async def test_a_client_that_waits_its_turn_may_leave_too(valkey: EmbeddedServer) -> None:
    async with upstream(stalls_after()) as up, gateway({"any": {"one": up.url}}, valkey.url, one_at_a_time) as house:
        pool = house.gateway.snapshot.pools["any"].pool
        _, first = await house.send("first")
        await up.arrived.wait()
        _, second = await house.send("second")
        await until(lambda: pool.waiting == 1)
        charged = await house.charged()
        second.close()
        await until(lambda: pool.waiting == 0)
        assert len(up.requests) == 1
        await until(lambda: len(house.gateway.requests) == 1)
        assert await house.charged() < charged, "what was reserved for it has flowed back"
        first.close()
        await house.nothing_left()
        assert await house.metric("kvgate_requests_total", outcome="client_gone") == 2
        assert await house.metric("kvgate_attempts_total") == 1
