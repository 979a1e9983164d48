"""A worker is kept alive whatever prevents it, and ended whatever it is at."""

import asyncio
import os
import sys
from pathlib import Path

import pytest

from config.settings import Settings
from gateway.supervisor import Worker
from tests.house import until


def worker(folder: Path) -> Worker:
    return Worker(0, folder / "kvgate.yaml", Settings(data_dir=folder), "unix:///nowhere")


async def test_what_cannot_be_started_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no such program"))
    files = len(os.listdir("/proc/self/fd"))
    keeping = asyncio.create_task(worker(tmp_path).keep())
    await until(lambda: caplog.text.count("worker not started") == 2)
    assert not keeping.done()
    assert len(os.listdir("/proc/self/fd")) <= files + 1  # it may be at its next try
    keeping.cancel()


async def test_a_worker_that_hangs_is_killed(tmp_path: Path) -> None:
    hanging = worker(tmp_path)
    hanging.process = await asyncio.create_subprocess_exec("sleep", "3600")
    await hanging.stopped(0.05)
    assert hanging.process.returncode == -9
