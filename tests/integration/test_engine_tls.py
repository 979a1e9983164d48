"""Engines behind TLS: the certificate and the name in it are checked, and the operator reads what is wrong with it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gateway.embedded import EmbeddedServer
from tests.certificates import Authority
from tests.house import events, gateway, until
from tests.upstream import CHUNKED, DONE, Script, Upstream, chunk, frame, stalls_after, streams

SAYS_HI = streams(frame("hi", finish="stop"), DONE)


@pytest.fixture
def trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Authority:
    """An authority that this machine trusts, as an operator makes it trust one."""
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    return authority


@asynccontextmanager
async def engine(pem: Path, script: Script) -> AsyncIterator[tuple[Upstream, int]]:
    """A scripted engine behind TLS, and its port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    up = Upstream("", [script])
    server = await asyncio.get_running_loop().create_server(up.protocol, "127.0.0.1", 0, ssl=context)
    try:
        yield up, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await up.close()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
async def test_calls_share_a_checked_connection(valkey: EmbeddedServer, trusted: Authority, host: str) -> None:
    async with (
        engine(trusted.issue(host), SAYS_HI) as (up, port),
        gateway({"any": {"one": f"https://{host}:{port}"}}, valkey.url) as house,
    ):
        for _ in range(2):
            answer = await house.chat(stream=True)
            assert events(answer.text)[-1] == "[DONE]"
        assert (len(up.requests), len(up.connections)) == (2, 1)
        assert up.requests[0].get(b"host") == [f"{host}:{port}".encode()]
        await house.nothing_left()


async def test_a_client_that_leaves_closes_the_engine_s_connection(valkey: EmbeddedServer, trusted: Authority) -> None:
    script = stalls_after(CHUNKED, chunk(frame("one")))
    async with (
        engine(trusted.issue("localhost"), script) as (up, port),
        gateway({"any": {"one": f"https://localhost:{port}"}}, valkey.url) as house,
    ):
        reader, writer = await house.send(stream=True)
        await reader.readuntil(b"one")
        writer.close()
        await up.peers[0].gone.wait()
        await house.nothing_left()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("authority", "unable to get local issuer certificate"),
        ("name", "Hostname mismatch"),
        ("time", "certificate has expired"),
    ],
)
async def test_a_wrong_certificate_is_refused_and_the_operator_reads_why(
    valkey: EmbeddedServer,
    trusted: Authority,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    wrong: str,
    why: str,
) -> None:
    pems = {
        "authority": Authority(tmp_path, "stranger").issue("localhost"),
        "name": trusted.issue("elsewhere"),
        "time": trusted.issue("localhost", timedelta(days=-1)),
    }
    async with engine(pems[wrong], SAYS_HI) as (up, port):
        pools = {"any": {"one": f"https://localhost:{port}"}}
        async with gateway(pools, valkey.url) as house:
            answer = await house.chat()
            assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_unreachable")
            await house.nothing_left()
        async with gateway(pools, valkey.url, often_probed):
            await until(lambda: bool(told(caplog)))
        assert why in told(caplog)[0]
        assert not up.requests, "nothing was sent: neither a prompt nor the engine's key"


def often_probed(data: dict[str, Any]) -> None:
    data["routing"]["probe_interval"] = "10ms"


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why replicas do not answer, as the log has it."""
    lines = [record for record in caplog.records if record.getMessage() == "replica does not answer"]
    return [str(record.__dict__["fields"]["why"]) for record in lines]
