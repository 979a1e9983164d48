"""An engine's URL that leads elsewhere: a client is not sent after it."""

from gateway.embedded import EmbeddedServer
from tests.house import gateway
from tests.upstream import answers, reply, upstream


async def test_a_redirect_is_an_engine_s_failure(valkey: EmbeddedServer) -> None:
    redirect = reply(302, b"", b"location: http://10.0.0.1/login")
    async with upstream(answers(redirect)) as up, gateway({"any": {"one": up.url}}, valkey.url) as house:
        answer = await house.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_error")
        assert "10.0.0.1" not in answer.text and "location" not in answer.headers
        await house.nothing_left()
        assert await house.charged() == 0
        assert await house.metric("kvgate_attempts_total", outcome="failure") == 1
