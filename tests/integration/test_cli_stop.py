"""How the programs end: on a signal cleanly, and when they are killed without leaving anything behind."""

import asyncio
import json
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from config.load import load
from gateway.demo import CONFIG_FILE
from gateway.demo import KEY as DEMO_KEY
from tests import program
from tests.house import KEY
from tests.upstream import CHUNKED, DONE, END, Peer, chunk, frame, stalls_after, upstream


async def gone(folder: Path) -> None:
    """Wait until nothing that belongs to the folder runs any more."""
    while program.processes_about(folder):  # noqa: ASYNC110
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_it_cleanly(tmp_path: Path, signum: signal.Signals) -> None:
    async with program.serving(program.file(tmp_path)) as running:
        assert program.processes_about(tmp_path / "data"), "its store runs"
        running.process.send_signal(signum)
        assert await running.ended() == 0
        assert not program.processes_about(tmp_path)


async def test_killed_it_leaves_no_orphan(tmp_path: Path) -> None:
    async with program.serving(program.file(tmp_path)) as running:
        assert program.processes_about(tmp_path / "data")
        running.process.kill()
        await running.ended()
        await gone(tmp_path)
    async with program.serving(program.file(tmp_path)) as again:
        again.process.send_signal(signal.SIGTERM)
        assert await again.ended() == 0


async def test_sigterm_lets_a_stream_end_and_the_budget_outlives_the_process(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    async def waits(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("one")))
        await go_on.wait()
        usage = frame(usage={"prompt_tokens": 30, "completion_tokens": 2})
        await peer.send(chunk(frame("two", finish="stop")), chunk(usage), chunk(DONE), END)

    async with upstream(waits) as up, program.serving(program.file(tmp_path, {"any": {"one": up.url}})) as running:
        url = f"http://127.0.0.1:{running.port}/v1/chat/completions"
        body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "stream": True}
        async with (
            httpx.AsyncClient(verify=False, trust_env=False, timeout=30) as http,
            http.stream("POST", url, json=body, headers={"authorization": f"Bearer {KEY}"}) as answer,
        ):
            pieces = answer.aiter_text()
            assert "one" in await anext(pieces)
            running.process.send_signal(signal.SIGTERM)
            await refused(running.port)
            go_on.set()
            assert "".join([piece async for piece in pieces]).endswith("data: [DONE]\n\n")
        assert await running.ended() == 0
    async with upstream(waits) as up, program.serving(program.file(tmp_path, {"any": {"one": up.url}})) as again:
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=30) as http:
            url = f"http://127.0.0.1:{again.port}/v1/chat/completions"
            whole = await http.post(url, json=body, headers={"authorization": f"Bearer {KEY}"})
        left = int(whole.headers["x-ratelimit-limit-tokens"]) - int(whole.headers["x-ratelimit-remaining-tokens"])
        assert left >= 32, "what the first process charged is still in use"


async def refused(port: int) -> None:
    """Wait until nobody listens there any more."""
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except ConnectionRefusedError:
            return
        except ConnectionResetError:  # it was in the queue of the socket that closed just then
            continue
        writer.close()
        await asyncio.sleep(0.01)


async def test_sigterm_ends_it_whatever_its_clients_and_engines_are_at(tmp_path: Path) -> None:
    flooding = asyncio.Event()

    async def floods_or_stalls(peer: Peer) -> None:
        await peer.send(CHUNKED, chunk(frame("one")))
        if b"flood" in peer.request.body:
            flooding.set()
            while True:
                await peer.send(chunk(frame("x" * 60_000)))
        await peer.gone.wait()

    async with (
        upstream(floods_or_stalls) as up,
        program.serving(program.file(tmp_path, {"any": {"one": up.url}}), KVGATE_DRAIN_SECONDS="200ms") as running,
    ):
        connections = [await asyncio.open_connection("127.0.0.1", running.port) for _ in range(6)]
        (_, half), (_, unread), (stalled, stalls), (_, closed), (_, pipelined), _ = connections  # the last says nothing
        half.write(posted("half")[:-10])
        unread.write(posted("flood"))
        stalls.write(posted("stall"))
        await stalled.readuntil(b"one")
        closed.write(posted("half closed"))
        closed.write_eof()
        pipelined.write(posted("first") + posted("second") + posted("third"))
        await flooding.wait()
        running.process.send_signal(signal.SIGTERM)
        assert await running.ended() == 0
        assert b'"code":"draining"' in await stalled.read()
        for _, writer in connections:
            writer.close()
        assert not program.processes_about(tmp_path)


async def test_a_second_signal_cuts_short_what_the_first_one_lets_end(tmp_path: Path) -> None:
    async with (
        upstream(stalls_after(CHUNKED, chunk(frame("one")))) as up,
        program.serving(program.file(tmp_path, {"any": {"one": up.url}}), KVGATE_DRAIN_SECONDS="1h") as running,
    ):
        reader, writer = await asyncio.open_connection("127.0.0.1", running.port)
        writer.write(posted("stall"))
        await reader.readuntil(b"one")
        running.process.send_signal(signal.SIGTERM)
        await refused(running.port)
        running.process.send_signal(signal.SIGTERM)
        assert b'"code":"draining"' in await reader.read()
        writer.close()
        assert await running.ended() == 0


def posted(content: str) -> bytes:
    """A streamed chat request as bytes."""
    body = json.dumps({"model": "demo", "messages": [{"role": "user", "content": content}], "stream": True}).encode()
    lines = ["host: x", "content-type: application/json", f"authorization: Bearer {KEY}"]
    head = ["POST /v1/chat/completions HTTP/1.1", *lines, f"content-length: {len(body)}", "", ""]
    return "\r\n".join(head).encode() + body


@asynccontextmanager
async def demo(folder: Path) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A demo that is ready, and the base URL that it printed."""
    require_free_ports()
    process = await program.started(folder, "demo", "--speed", "100")
    try:
        assert process.stdout is not None and process.stderr is not None
        said = ""
        while "Ctrl-C" not in said:
            if not (line := (await process.stdout.readline()).decode()):
                require_free_ports()  # somebody may have taken one meanwhile
                raise AssertionError(f"it ended before it was ready: {(await process.stderr.read()).decode()}")
            said += line
        yield process, next(word for word in said.split() if word.startswith("http") and word.endswith("/v1"))
    finally:
        if process.returncode is None:
            process.kill()
            await process.communicate()


async def test_ctrl_c_ends_the_demo_and_all_it_started(tmp_path: Path) -> None:
    async with demo(tmp_path) as (process, url):
        body = {"model": "demo", "messages": [{"role": "user", "content": "Hello!"}], "max_tokens": 4}
        async with httpx.AsyncClient(verify=False, trust_env=False, timeout=30) as http:
            key = {"authorization": f"Bearer {DEMO_KEY}"}
            assert (await http.post(f"{url}/chat/completions", json=body, headers=key)).status_code == 200
        process.send_signal(signal.SIGINT)
        _, err = await process.communicate()
        assert (process.returncode, err) == (0, b"")
        assert not program.processes_about(tmp_path)
        require_free_ports()


async def test_a_demo_that_is_killed_leaves_nothing_running(tmp_path: Path) -> None:
    async with demo(tmp_path) as (process, _):
        process.kill()
        await process.communicate()
        await gone(tmp_path)
        while taken_port() is not None:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


def require_free_ports() -> None:
    """The demo's engines have fixed ports; where one is taken there is nothing to see."""
    if (name := taken_port()) is not None:
        pytest.skip(f"the port of {name} is taken on this machine")


def taken_port() -> str | None:
    """The first of the demo's engines whose port somebody has."""
    for pool in load(CONFIG_FILE).pools.values():
        for replica in pool.replicas:
            with socket.socket() as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind(("127.0.0.1", urlsplit(replica.url).port or 0))
                except OSError:
                    return replica.name
    return None
