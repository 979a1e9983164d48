"""What must never be written or told: prompts, answers, keys, secrets, where the engines are."""

import logging
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from gateway.embedded import EmbeddedServer
from gateway.logs import LOGGER, JsonLines
from tests.fault.store_proxy import store_proxy
from tests.house import KEY, gateway, house
from tests.upstream import answers, reply, upstream

PROMPT = "the-launch-code-is-0000"
ENGINE_KEY = "engine-secret-key"


class Lines(logging.Handler):
    """Keeps what would have been written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(self.format(record))


@pytest.fixture
def lines() -> Iterator[list[str]]:
    handler = Lines()
    LOGGER.addHandler(handler)
    before = LOGGER.level
    LOGGER.setLevel(logging.DEBUG)
    yield handler.written
    LOGGER.removeHandler(handler)
    LOGGER.setLevel(before)


def short(data: dict[str, Any]) -> None:
    data["tiers"]["standard"]["context"] = {"limit_tokens": 50}


FAULTS = ["refuse", "status=code:500", "status=code:503", "cut=after:3", "error=after:3", "malformed=after:1"]


async def test_no_log_line_holds_a_prompt_or_a_key(valkey: EmbeddedServer, lines: list[str]) -> None:
    async with store_proxy(valkey.url) as proxy, house(proxy.url, change=short) as running:
        for fault in FAULTS:
            for stream in (True, False):
                await running.chat(PROMPT, stream=stream, kvgate_fault=fault)
        await running.chat(PROMPT * 100)
        await running.chat(PROMPT, key="sk-not-a-key-of-anyone")
        await running.chat(PROMPT, model=PROMPT)
        await running.chat(PROMPT, max_tokens=PROMPT)
        proxy.away()
        await running.chat(PROMPT)
        await running.quiet()
        ports = [str(engine.port) for engine in running.engines.values()]
    written = "\n".join(lines)
    assert "refused" in written, "something was written"
    for secret in (PROMPT, KEY, "sk-not-a-key", "launch", "s" * 32, *ports):
        assert secret not in written


async def test_no_error_tells_where_the_engines_are_or_what_their_key_is(
    valkey: EmbeddedServer, unused_tcp_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEST_ENGINE_KEY", ENGINE_KEY)

    def change(data: dict[str, Any]) -> None:
        data["pools"]["any"]["engine_key"] = "env:TEST_ENGINE_KEY"

    leaky = reply(500, b'{"error":{"message":"10.1.2.3:8000 said: Bearer engine-secret-key","type":"x","code":500}}')
    async with upstream(answers(leaky)) as up:
        urls = {"any": {"closed": f"http://127.0.0.1:{unused_tcp_port}", "leaky": up.url}}
        async with gateway(urls, valkey.url, change) as running:
            told = [await running.chat(f"call {number}") for number in range(4)]
    for answer in told:
        assert answer.status_code >= 500
        for secret in ("10.1.2.3", "127.0.0.1", str(unused_tcp_port), ENGINE_KEY, "closed", "leaky"):
            assert secret not in answer.text + str(answer.headers)


@pytest.mark.parametrize("path", ["/metrics", "/tokenize", "/v1/tokenize", "/health", "/emulator/faults", "/load"])
async def test_what_only_operators_may_see_is_not_on_the_tenants_port(valkey: EmbeddedServer, path: str) -> None:
    async with house(valkey.url) as running, httpx.AsyncClient(verify=False, trust_env=False) as http:
        for method in ("GET", "POST"):
            answer = await http.request(
                method,
                f"http://127.0.0.1:{running.gateway.port}{path}",
                headers={"authorization": f"Bearer {KEY}", "content-type": "application/json"},
                content=b"{}",
            )
            assert answer.status_code == 404
