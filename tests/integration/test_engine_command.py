"""`kvgate engine` as a process: what it prints, how it ends."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import ClientError, ClientSession, ClientTimeout

RUN = "import typer; from loadtest.cli import engine; typer.run(engine)"


async def command(*options: str) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(sys.executable, "-c", RUN, *options, stdout=pipe, stderr=pipe)


@asynccontextmanager
async def running(*options: str) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """The process and its URL; killed if the test did not end it."""
    process = await command("--port", "0", "--speed", "100", *options)
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield process, line.split()[-1]
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def test_a_port_that_is_taken_is_one_line() -> None:
    async with running() as (_, url):
        second = await command("--port", url.rpartition(":")[2])
        _, error = await second.communicate()
    assert second.returncode == 1
    assert error.decode().count("\n") == 1
    assert "Address already in use" in error.decode() and "Traceback" not in error.decode()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--model", "nothing"], "no model named 'nothing'"),
        (["--gpu", "abacus"], "no GPU named 'abacus'"),
        (["--kind", "sglang"], "--kind: Input should be 'vllm' or 'tgi'"),
        (["--fault", "explode=1"], "no fault named 'explode'"),
        (["--speed", "0"], "--speed: Input should be greater than 0"),
        (["--num-gpu-blocks-override", "3"], "does not fit the KV cache of 48 tokens"),
    ],
)
async def test_what_cannot_work_is_one_line(options: list[str], told: str) -> None:
    process = await command(*options)
    _, error = await process.communicate()
    assert process.returncode == 1
    assert told in error.decode() and error.decode().count("\n") == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_it_ends_at_once_when_told_to_though_a_stream_is_open(number: signal.Signals) -> None:
    body = {"prompt": "hello", "max_tokens": 30_000, "ignore_eos": True, "stream": True}
    async with running() as (process, url), ClientSession(timeout=ClientTimeout(total=20)) as session:
        async with session.post(f"{url}/v1/completions", json=body) as reply:
            await reply.content.readline()
            process.send_signal(number)
            with pytest.raises(ClientError):
                await reply.read()
        assert await process.wait() == 0
        assert process.stderr is not None and await process.stderr.read() == b""


async def test_die_is_the_end_of_the_process() -> None:
    body = {"prompt": "hello", "max_tokens": 30, "ignore_eos": True, "stream": True}
    async with running("--fault", "die=after:5") as (process, url), ClientSession() as session:
        with pytest.raises(ClientError):
            async with session.post(f"{url}/v1/completions", json=body) as reply:
                await reply.read()
        assert await process.wait() == 70


async def test_tgi_is_marked_as_unverified() -> None:
    process = await command("--help")
    shown, _ = await process.communicate()
    assert "not verified" in " ".join(shown.decode().replace("│", " ").split())
