"""A client that leaves while its session and budget are still being opened: nothing stays reserved."""

from gateway.embedded import EmbeddedServer
from tests.fault.store_proxy import store_proxy
from tests.house import gateway, until
from tests.upstream import stalls_after, upstream


async def test_what_was_reserved_flows_back_and_no_engine_is_asked(valkey: EmbeddedServer) -> None:
    async with (
        store_proxy(valkey.url) as proxy,
        upstream(stalls_after()) as up,
        gateway({"any": {"one": up.url}}, proxy.url) as house,
    ):
        proxy.answering.clear()
        _, writer = await house.send(stream=True)
        await until(lambda: len(house.gateway.requests) == 1)
        writer.close()
        while await house.metric("kvgate_connections"):
            pass
        proxy.answering.set()
        await house.nothing_left()
        assert not up.requests
        assert await house.charged() == 0
        assert await house.metric("kvgate_requests_total", outcome="client_gone") == 1
