"""Prefill on one emulated engine, decode on another, as recorded between two vLLM servers with the NIXL connector."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from loadtest.engine import Engine, serve
from tests.conformance.engine.conftest import RECORDED
from tests.conformance.engine.recording import changed, frames_by_choice, request, response, send, shape

FOLDER = "vllm-0.32.0"


@pytest.fixture
async def decoder() -> AsyncIterator[Engine]:
    async with serve(RECORDED) as running:
        yield running


async def prefill(engine: Engine) -> dict[str, object]:
    """The parameters that the prefill leg answers with."""
    ours = await send(engine.port, request(FOLDER, "pd_basic_1_prefill"))
    assert shape(ours.json) == shape(response(FOLDER, "pd_basic_1_prefill").json)
    assert isinstance(ours.json, dict)
    params: dict[str, object] = ours.json["kv_transfer_params"]
    return params


async def test_both_legs_have_the_recorded_shape(engine: Engine, decoder: Engine) -> None:
    params = await prefill(engine)
    assert engine.emulator.driver.scheduler.pool.used > 0, "the blocks are kept for the other engine"
    raw = changed(request(FOLDER, "pd_basic_2_decode"), kv_transfer_params=params, ignore_eos=True)
    ours = await send(decoder.port, raw)
    assert shape(ours.json) == shape(response(FOLDER, "pd_basic_2_decode").json)
    assert engine.emulator.driver.scheduler.pool.used == 0, "fetched, so kept no longer"


async def test_the_decode_leg_counts_what_came_from_elsewhere(engine: Engine, decoder: Engine) -> None:
    params = await prefill(engine)
    await send(decoder.port, changed(request(FOLDER, "pd_basic_2_decode"), kv_transfer_params=params))
    scraped = decoder.emulator.metrics.scrape().decode()
    prompt_tokens = params["remote_num_tokens"]
    assert isinstance(prompt_tokens, int)
    assert f'source="external_kv_transfer"}} {prompt_tokens - 1}.0' in scraped
    assert 'source="local_compute"} 1.0' in scraped


async def test_a_streamed_decode_leg_is_an_ordinary_stream(engine: Engine, decoder: Engine) -> None:
    params = await prefill(engine)
    raw = changed(
        request(FOLDER, "pd_basic_2_decode"),
        kv_transfer_params=params, stream=True, stream_options={"include_usage": True},
    )  # fmt: skip
    ours = await send(decoder.port, raw)
    assert frames_by_choice(ours.events) == frames_by_choice(response(FOLDER, "chat_stream_usage").events)


async def test_an_unknown_engine_is_an_internal_error(decoder: Engine, engine: Engine) -> None:
    params = {**await prefill(engine), "remote_engine_id": "00000000-0000-0000-0000-000000000000"}
    ours = await send(decoder.port, changed(request(FOLDER, "pd_err_bad_engine_decode"), kv_transfer_params=params))
    theirs = response(FOLDER, "pd_err_bad_engine_decode")
    assert (ours.start, ours.body) == (theirs.start, theirs.body)


async def test_the_same_blocks_are_not_fetched_twice(engine: Engine, decoder: Engine) -> None:
    params = await prefill(engine)
    raw = changed(request(FOLDER, "pd_basic_2_decode"), kv_transfer_params=params)
    assert [(await send(decoder.port, raw)).status for _ in range(2)] == [200, 500]


async def test_recompute_policy_answers_without_the_other_engine(engine: Engine) -> None:
    params = {**await prefill(engine), "remote_port": 1}
    async with serve(RECORDED.model_copy(update={"kv_load_failure_policy": "recompute"})) as lone:
        raw = changed(request(FOLDER, "pd_basic_2_decode"), kv_transfer_params=params)
        assert (await send(lone.port, raw)).status == 200
        assert b"nixl_num_failed_transfers_total" in lone.emulator.metrics.scrape()


@pytest.mark.parametrize("copies", [1, 2])
async def test_a_lease_that_nobody_claims_expires(copies: int) -> None:
    """Of several choices only the first is kept."""
    async with serve(RECORDED.model_copy(update={"kv_lease_seconds": 0.01})) as engine:
        await send(engine.port, changed(request(FOLDER, "pd_basic_1_prefill"), n=copies))
        while len(engine.emulator.leases):  # noqa: ASYNC110  # the engine has no event for what nobody waits for
            await asyncio.sleep(0.005)
        assert engine.emulator.driver.scheduler.pool.used == 0
        assert b'nixl_num_kv_expired_reqs_total{engine="0",model_name="tiny"} 1.0' in engine.emulator.metrics.scrape()


async def test_a_prefill_leg_that_breaks_keeps_nothing(engine: Engine) -> None:
    raw = changed(request(FOLDER, "pd_basic_1_prefill"), kvgate_fault="error=after:1")
    assert (await send(engine.port, raw)).status == 500
    assert engine.emulator.driver.scheduler.pool.used == 0 == len(engine.emulator.leases)
