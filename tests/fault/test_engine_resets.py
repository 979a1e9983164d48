"""An engine whose connection dies before the first byte of an answer has gone to the client."""

import pytest

from gateway.embedded import EmbeddedServer
from tests.house import events, gateway
from tests.upstream import CHUNKED, DONE, chunk, frame, resets_after, streams, upstream

WHOLE = [frame("a"), frame("b", finish="stop"), frame(usage={"prompt_tokens": 3, "completion_tokens": 2}), DONE]
HALF_A_FRAME = frame("never seen")[:20]


@pytest.mark.parametrize(
    "sent",
    [(), (b"HTTP/1.1 200 OK\r\n",), (CHUNKED,), (CHUNKED, chunk(HALF_A_FRAME))],
    ids=["nothing", "half a head", "a head", "half a frame"],
)
async def test_another_engine_answers(valkey: EmbeddedServer, sent: tuple[bytes, ...]) -> None:
    async with (
        upstream(resets_after(*sent)) as broken,
        upstream(streams(*WHOLE)) as sound,
        gateway({"any": {"broken": broken.url, "sound": sound.url}}, valkey.url) as house,
    ):
        for number in range(2):  # one of the two begins at the broken one
            answer = await house.chat(f"call {number}", stream=True)
            assert answer.status_code == 200
            assert events(answer.content) == events(WHOLE[0] + WHOLE[1] + DONE)
        await house.nothing_left()
        assert len(broken.requests) >= 1
        assert await house.charged() == 2 * 5
        assert await house.metric("kvgate_attempts_total", replica="broken", outcome="failure") >= 1
        assert await house.metric("kvgate_requests_total", outcome="ok") == 2


async def test_with_no_other_the_client_is_told_and_pays_nothing(valkey: EmbeddedServer) -> None:
    async with (
        upstream(resets_after()) as first,
        upstream(resets_after()) as second,
        gateway({"any": {"one": first.url, "two": second.url}}, valkey.url) as house,
    ):
        answer = await house.chat(stream=True)
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_unreachable")
        await house.nothing_left()
        assert (len(first.requests), len(second.requests)) == (1, 1)
        assert await house.metric("kvgate_requests_total", outcome="engine_failed") == 1
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 2
        assert await house.charged() == 0
        assert not first.connections and not second.connections
