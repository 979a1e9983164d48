"""Recorded requests, good and bad, sent to vLLM itself and through the gateway: the answers differ as known.

The 401 is held against a recorded one, because this vLLM asks for no key.
"""

from pathlib import Path

import pytest

from gateway.app import Gateway
from tests.conformance.engine.recording import SAMPLES, request, response, send
from tests.vllm.answers import OUR_WORDS, addressed, differences
from tests.vllm.engine import Engine
from tests.vllm.known import known, table

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(900)]

FOLDER = "vllm-0.32.0"
NOT_HERE = ("pd_", "overload", "noauth", "badauth")
"""Recorded from engines that were started in another way."""
REQUESTS = sorted(
    name
    for name in (path.name.removesuffix(".request.http") for path in (SAMPLES / FOLDER).glob("*.request.http"))
    if not name.startswith(NOT_HERE)
)


@pytest.mark.parametrize("name", REQUESTS)
async def test_the_answer_differs_only_as_known(gateway: Gateway, engine: Engine, name: str) -> None:
    raw = addressed(request(FOLDER, name), b"smollm2", b"sk-plain")
    assert differences(await send(engine.port, raw), await send(gateway.port, raw)) == known(name)


async def test_an_alias_is_the_name_in_the_answer_and_nothing_else_changes(gateway: Gateway, engine: Engine) -> None:
    for name in ("chat_nonstream", "chat_stream_usage"):
        raw = request(FOLDER, name)
        direct = await send(engine.port, addressed(raw, b"smollm2", None))
        through = await send(gateway.port, addressed(raw, b"chat", b"sk-plain"))
        assert differences(direct, through) == {}
        assert b'"model":"chat"' in through.body and b"smollm2" not in through.body


async def test_headers(gateway: Gateway, engine: Engine) -> None:
    raw = addressed(request(FOLDER, "chat_nonstream"), b"smollm2", b"sk-plain")
    direct, through = await send(engine.port, raw), await send(gateway.port, raw)
    assert set(direct.headers) - set(through.headers) == {"server", "vary"}
    assert set(through.headers) - set(direct.headers) == {"x-kvgate-context"}
    assert f'"id":"chatcmpl-{through.headers["x-request-id"]}"'.encode() in through.body


async def test_without_a_key_the_answer_is_401_as_an_error_object(gateway: Gateway) -> None:
    through = await send(gateway.port, addressed(request(FOLDER, "noauth"), b"smollm2", None))
    assert differences(response(FOLDER, "noauth"), through) == {
        "body.error": ("str", None),
        "error.message": (None, OUR_WORDS),
        "error.type": (None, "invalid_request_error"),
        "error.code": (None, "invalid_api_key"),
    }


def test_the_document_shows_the_table() -> None:
    text = (Path(__file__).parents[2] / "docs" / "vllm.md").read_text("utf-8")
    assert "\n".join(table()) in text
