"""A client that closes its sending side after its request: for a call that costs an engine it counts as gone."""

from gateway.embedded import EmbeddedServer
from tests.house import gateway
from tests.upstream import CHUNKED, chunk, frame, stalls_after, upstream


async def test_a_call_ends_and_the_engine_is_let_go(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, chunk(frame("one")))
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        reader, writer = await house.send(stream=True)
        await reader.readuntil(b"one")
        writer.write_eof()
        await up.peers[0].gone.wait()
        assert not (await reader.read()).endswith(b"0\r\n\r\n"), "what is broken off does not look complete"
        await house.nothing_left()
        assert await house.metric("kvgate_requests_total", outcome="client_gone") == 1
        assert await house.metric("kvgate_attempts_total", outcome="neutral") == 1
        assert await house.metric("kvgate_attempts_total") == 1
        assert await house.charged_as_counted() > 0
        writer.close()


async def test_a_look_up_is_still_answered(valkey: EmbeddedServer) -> None:
    async with upstream(stalls_after()) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        reader, writer = await house.send_raw(b"", path="/v1/nowhere")
        writer.write_eof()
        assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 404 ")
        writer.close()
