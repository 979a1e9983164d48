"""A new file is put into force; a wrong one changes nothing and is counted."""

import asyncio
from pathlib import Path

import pytest
import yaml

from config.model import Config
from gateway.metrics import Metrics
from gateway.reloading import Reloading, state_of
from tests.unit.config.samples import changed


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "kvgate.yaml"
    path.write_text(yaml.safe_dump(changed()))
    return path


class Put:
    """Takes configurations; `fault` is what putting one raises."""

    fault: Exception | None = None

    def __init__(self) -> None:
        self.taken: list[Config] = []

    async def __call__(self, config: Config) -> None:
        if self.fault is not None:
            raise self.fault
        self.taken.append(config)


async def test_a_right_file_is_put_into_force(file: Path) -> None:
    put, metrics = Put(), Metrics()
    await Reloading(file, put, metrics).reload()
    assert [list(config.tenants) for config in put.taken] == [["acme"]]
    assert metrics.reloads.values == {("done",): 1}


@pytest.mark.parametrize("text", ["models: {", "models: 3", "", "a: b"])
async def test_a_wrong_file_changes_nothing(file: Path, text: str) -> None:
    put, metrics = Put(), Metrics()
    await asyncio.to_thread(file.write_text, text)
    await Reloading(file, put, metrics).reload()
    assert (put.taken, metrics.reloads.values) == ([], {("refused",): 1})


async def test_a_file_that_is_gone_changes_nothing(file: Path) -> None:
    put, metrics = Put(), Metrics()
    reloading = Reloading(file, put, metrics)
    await asyncio.to_thread(file.unlink)
    await reloading.reload()
    assert (put.taken, metrics.reloads.values) == ([], {("refused",): 1})


async def test_what_cannot_be_built_changes_nothing(file: Path) -> None:
    put, metrics = Put(), Metrics()
    put.fault = ValueError("no such encoding")
    await Reloading(file, put, metrics).reload()
    assert metrics.reloads.values == {("refused",): 1}


async def test_what_changed_while_the_gateway_started_is_not_missed(file: Path) -> None:
    loaded, seen = asyncio.Event(), state_of(file)
    await asyncio.to_thread(file.write_text, yaml.safe_dump(changed()) + "\n")

    async def taken(config: Config) -> None:
        loaded.set()

    watching = asyncio.create_task(Reloading(file, taken, Metrics(), seen).watch())
    await loaded.wait()
    watching.cancel()


async def test_a_signal_reloads_a_file_that_did_not_change(file: Path) -> None:
    put, loaded = Put(), asyncio.Event()

    async def taken(config: Config) -> None:
        await put(config)
        loaded.set()

    reloading = Reloading(file, taken, Metrics())
    watching = asyncio.create_task(reloading.watch())
    reloading.ask()
    await loaded.wait()
    watching.cancel()
    assert len(put.taken) == 1
