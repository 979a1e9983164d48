"""Emulated engines set up as the recorded servers were."""

from collections.abc import AsyncIterator

import pytest

from loadtest.engine import Engine, Settings, serve

RECORDED = Settings(
    served_model_name="tiny",
    max_model_len=2048,
    block_size=128,
    speed=200,
    scheduling_policy="priority",
    enable_request_id_headers=True,
)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    async with serve(RECORDED) as running:
        yield running


@pytest.fixture
async def guarded() -> AsyncIterator[Engine]:
    """With a key, a queue limit and usage on every stream."""
    settings = RECORDED.model_copy(
        update={"api_key": "sekret", "max_num_queued_reqs": 4, "enable_force_include_usage": True}
    )
    async with serve(settings) as running:
        yield running
