"""Every fault of the emulated engine, as a client sees it."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from aiohttp import ClientError, ClientPayloadError, ClientSession, ClientTimeout, ServerDisconnectedError

from loadtest.engine import Engine, Settings, serve

FAST = Settings(served_model_name="demo", speed=200, max_model_len=8192)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with serve(FAST) as running:
        yield running


@pytest.fixture
async def session() -> AsyncIterator[ClientSession]:
    async with ClientSession(timeout=ClientTimeout(total=10)) as made:
        yield made


async def ask(
    session: ClientSession, engine: Engine, fault: str = "", stream: bool = False, **fields: object
) -> tuple[int, bytes]:
    """Status and body of a reply of twenty tokens."""
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 20, "stream": stream, **fields}
    headers = {"x-kvgate-fault": fault} if fault else {}
    async with session.post(f"{engine.url}/v1/chat/completions", json=body, headers=headers) as reply:
        return reply.status, await reply.read()


def frames(body: bytes) -> list[str]:
    return [line[6:] for line in body.decode().splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("stream", [True, False])
async def test_refuse_closes_before_any_header(session: ClientSession, engine: Engine, stream: bool) -> None:
    with pytest.raises(ServerDisconnectedError):
        await ask(session, engine, "refuse", stream)


@pytest.mark.parametrize("stream", [True, False])
async def test_status(session: ClientSession, engine: Engine, stream: bool) -> None:
    status, body = await ask(session, engine, "status=code:502", stream)
    assert (status, json.loads(body)["error"]["code"]) == (502, 502)


async def test_slow_waits_before_the_first_token(session: ClientSession, engine: Engine) -> None:
    loop = asyncio.get_running_loop()
    start = loop.time()
    status, _ = await ask(session, engine, "slow=seconds:0.2")
    assert status == 200 and loop.time() - start >= 0.2


async def test_stall_stops_after_so_many_tokens(session: ClientSession, engine: Engine) -> None:
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 20, "stream": True}
    url, headers = f"{engine.url}/v1/chat/completions", {"x-kvgate-fault": "stall=after:5"}
    async with session.post(url, json=body, headers=headers) as reply:
        lines = [await reply.content.readline() for _ in range(12)]
        assert sum(b'"content":' in line for line in lines) == 6, "the role and five tokens"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reply.content.readline(), 0.2)


async def test_a_stall_can_end(session: ClientSession, engine: Engine) -> None:
    _, body = await ask(session, engine, "stall=after:5,seconds:0.01", stream=True)
    assert len(frames(body)) == 22


async def test_cut_breaks_the_stream_without_an_end(session: ClientSession, engine: Engine) -> None:
    with pytest.raises(ClientPayloadError):
        await ask(session, engine, "cut=after:5", stream=True)


async def test_cut_breaks_a_body_in_the_middle(session: ClientSession, engine: Engine) -> None:
    with pytest.raises(ClientPayloadError):
        await ask(session, engine, "cut=after:5")


async def test_error_is_a_frame_and_then_done(session: ClientSession, engine: Engine) -> None:
    status, body = await ask(session, engine, "error=after:5", stream=True)
    *_, last, done = frames(body)
    assert status == 200 and done == "[DONE]" and len(frames(body)) == 8
    assert json.loads(last)["error"]["code"] == 500


async def test_error_in_one_piece_is_a_500(session: ClientSession, engine: Engine) -> None:
    assert (await ask(session, engine, "error=after:5"))[0] == 500


async def test_malformed_is_one_frame_that_is_no_json(session: ClientSession, engine: Engine) -> None:
    _, body = await ask(session, engine, "malformed=after:5", stream=True)
    broken = []
    for frame in frames(body)[:-1]:
        try:
            json.loads(frame)
        except ValueError:
            broken.append(frame)
    assert len(broken) == 1 and frames(body)[-1] == "[DONE]"


async def test_malformed_in_one_piece(session: ClientSession, engine: Engine) -> None:
    status, body = await ask(session, engine, "malformed")
    assert status == 200
    with pytest.raises(ValueError, match="Unterminated"):
        json.loads(body)


async def test_die_takes_the_engine_away(session: ClientSession, engine: Engine) -> None:
    with pytest.raises(ClientError):
        await ask(session, engine, "die=after:5", stream=True)
    await engine.dead.wait()
    with pytest.raises(ClientError):
        await ask(session, engine)


async def test_a_field_of_the_body_does_as_well(session: ClientSession, engine: Engine) -> None:
    assert (await ask(session, engine, kvgate_fault="status=code:503"))[0] == 503


async def test_a_fault_that_is_wrong_is_a_400(session: ClientSession, engine: Engine) -> None:
    status, body = await ask(session, engine, "explode")
    assert status == 400 and b"no fault named" in body


async def test_faults_for_all_can_be_changed_at_run_time(session: ClientSession, engine: Engine) -> None:
    url = f"{engine.url}/emulator/faults"
    async with session.post(url, json={"faults": ["status=0.5,code:503"]}) as reply:
        assert reply.status == 200
    statuses = [(await ask(session, engine))[0] for _ in range(40)]
    assert 8 < statuses.count(503) < 32 and set(statuses) == {200, 503}
    async with session.post(url, json={"faults": ["nonsense"]}) as reply:
        assert reply.status == 400
    async with session.post(url, json={"faults": []}) as reply:
        assert await reply.json() == {"faults": []}
    assert {(await ask(session, engine))[0] for _ in range(10)} == {200}


async def test_nothing_is_left_behind(session: ClientSession, engine: Engine) -> None:
    """After every fault the sequences are gone and the blocks free."""
    for fault in ("refuse", "cut=after:3", "error=after:3", "malformed", "status"):
        for stream in (True, False):
            try:
                await ask(session, engine, fault, stream)
            except ClientError:
                pass
    assert engine.emulator.driver.scheduler.idle
    assert engine.emulator.driver.scheduler.pool.used == 0
    assert engine.emulator.serving == 0
