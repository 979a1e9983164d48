"""What tests with real parts share: the loop that production runs on, and a real Valkey, emptied before every test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

from config.settings import Settings
from gateway import embedded
from gateway.store import Store, StoreSettings
from gateway.tasks import Tasks

# A timing decides no test: on a busy machine the store may take its time, and so may an example.
settings.register_profile("patient", deadline=None, suppress_health_check=(HealthCheck.too_slow,))
settings.load_profile("patient")
PATIENT = StoreSettings(call_timeout_seconds=20.0, connect_timeout_seconds=20.0)

REAL_PARTS = ("conformance", "fault", "integration")
"""Folders of tests with sockets; they run on the loop that ships."""


def pytest_asyncio_loop_factories(item: pytest.Item) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    folder = item.path.relative_to(Path(__file__).parent).parts[0]
    return {"uvloop": uvloop.new_event_loop} if folder in REAL_PARTS else {"asyncio": asyncio.new_event_loop}


@pytest.fixture(scope="session")
def valkey() -> Iterator[embedded.EmbeddedServer]:
    """The embedded server, as it ships or as `KVGATE_STORE_PROGRAM` names it."""
    with tempfile.TemporaryDirectory(prefix="kvgate-test-") as folder:
        server = embedded.start(Path(folder), Settings().store_program)
        try:
            yield server
        finally:
            server.close()


@pytest.fixture
async def tasks() -> AsyncIterator[Tasks]:
    group = Tasks()
    yield group
    await group.close()


@pytest.fixture
async def store(valkey: embedded.EmbeddedServer, tasks: Tasks) -> AsyncIterator[Store]:
    """A store on the empty embedded server."""
    connected = await Store.connect(valkey.url, tasks, PATIENT)
    await connected.command("FLUSHALL")
    yield connected
    connected.close()
