"""A real Valkey for the tests that need one: one server per session, emptied before every test."""

import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway import embedded
from gateway.store import Store, StoreSettings
from gateway.tasks import Tasks

# A timing decides no test: on a busy machine the store may take its time.
PATIENT = StoreSettings(call_timeout_seconds=20.0, connect_timeout_seconds=20.0)


@pytest.fixture(scope="session")
def valkey() -> Iterator[embedded.EmbeddedServer]:
    """The embedded server, as it ships."""
    with tempfile.TemporaryDirectory(prefix="kvgate-test-") as folder:
        server = embedded.start(Path(folder))
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
