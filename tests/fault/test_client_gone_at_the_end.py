"""A client that closes once it has read `[DONE]`, as SDKs do, before the bytes that end the answer: all went well."""

from gateway.embedded import EmbeddedServer
from tests.house import gateway
from tests.upstream import CHUNKED, chunk, frame, stalls_after, upstream

DONE = chunk(b"data: [DONE]\n\n")
USAGE = chunk(frame(usage={"prompt_tokens": 7, "completion_tokens": 1}))


async def test_it_has_had_all_of_its_answer(valkey: EmbeddedServer) -> None:
    script = stalls_after(CHUNKED, chunk(frame("one", finish="stop")), USAGE, DONE)
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        reader, writer = await house.send(stream=True)
        await reader.readuntil(b"[DONE]\n\n")
        writer.close()
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.metric("kvgate_requests_total", outcome="ok") == 1
        assert await house.metric("kvgate_requests_total", outcome="client_gone") == 0
        assert await house.metric("kvgate_attempts_total", outcome="success") == 1
        assert await house.charged() == 8


async def test_an_error_before_the_end_is_still_one(valkey: EmbeddedServer) -> None:
    error = chunk(b'data: {"error":{"message":"out of memory","code":500}}\n\n')
    script = stalls_after(CHUNKED, chunk(frame("one")), error, DONE)
    async with upstream(script) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        reader, writer = await house.send(stream=True)
        await reader.readuntil(b"[DONE]\n\n")
        writer.close()
        await up.peers[0].gone.wait()
        await house.nothing_left()
        assert await house.metric("kvgate_requests_total", outcome="ok") == 0
