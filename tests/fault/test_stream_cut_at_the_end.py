"""Event: the engine is cut off after its last token, before `[DONE]`: the client is told, not left in silence."""

from gateway.embedded import EmbeddedServer
from tests.house import events, gateway
from tests.upstream import CHUNKED, DONE, Peer, upstream

LAST = b'data: {"choices":[{"index":0,"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


async def cut(peer: Peer) -> None:
    await peer.send(CHUNKED + chunk(LAST))
    peer.reset()


async def ended_without_done(peer: Peer) -> None:
    await peer.send(CHUNKED + chunk(LAST) + b"0\r\n\r\n")


async def whole(peer: Peer) -> None:
    await peer.send(CHUNKED + chunk(LAST) + chunk(DONE) + b"0\r\n\r\n")


async def test_a_cut_after_the_last_token_is_told(valkey: EmbeddedServer) -> None:
    async with upstream(cut) as engine, gateway({"any": {"one": engine.url}}, valkey.url) as running:
        answer = await running.chat(stream=True)
        assert events(answer.text)[-1].startswith('{"error":')
        await running.nothing_left()
        assert await running.metric("kvgate_requests_total", outcome="broken") == 1
        assert await running.metric("kvgate_attempts_total", outcome="failure") == 1
        assert await running.metric("kvgate_tokens_total", kind="decode") == 1
        assert await running.charged_as_counted() > 1


async def test_an_engine_that_never_sends_done_but_ends_its_body_is_whole(valkey: EmbeddedServer) -> None:
    for script in (ended_without_done, whole):
        async with upstream(script) as engine, gateway({"any": {"one": engine.url}}, valkey.url) as running:
            answer = await running.chat(stream=True)
            assert '"error"' not in answer.text
            await running.nothing_left()
            assert await running.metric("kvgate_requests_total", outcome="ok") == 1
            assert await running.metric("kvgate_attempts_total", outcome="success") == 1
            assert await running.charged_as_counted() > 1
