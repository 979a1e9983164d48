"""A gateway in front of a real vLLM that serves `smollm2`; `tests/vllm/run.sh` starts it and says where it is.

Rule: without that address nothing of this folder is collected. What a test has to tell beside pass or fail is printed
at the end.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from config.load import parse
from config.settings import Settings
from gateway.app import Gateway, running
from tests.vllm.engine import Engine, scraped

ADDRESS = "KVGATE_VLLM_URL"
CONFIG = Path(__file__).with_name("gateway.yaml")
TOLD = pytest.StashKey[list[str]]()

collect_ignore_glob = [] if ADDRESS in os.environ else ["test_*.py"]


@pytest.fixture(scope="session")
def engine() -> Engine:
    return Engine(os.environ[ADDRESS])


@pytest.fixture
async def gateway(engine: Engine, tmp_path: Path) -> AsyncIterator[Gateway]:
    """Ready, and aware of the engine's context limit."""
    async with serving(engine.url, tmp_path) as gateway:
        yield gateway


@asynccontextmanager
async def serving(engine_url: str, folder: Path) -> AsyncIterator[Gateway]:
    """A gateway before an engine at this address, with its store in `folder`."""
    config = parse(CONFIG.read_text("utf-8").replace("http://127.0.0.1:8000", engine_url))
    # The store's patience is long because this machine computes a model beside it.
    settings = Settings(port=0, admin_port=0, data_dir=folder, store_timeout_seconds=20, drain_seconds=1)
    async with running(config, settings) as gateway:
        pool = gateway.snapshot.pools["main"].pool
        while gateway.why_not_ready() is not None or pool.max_model_len is None:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        yield gateway


async def counted(gateway: Gateway) -> dict[str, float]:
    """The gateway's metrics once every request has run through its last step."""
    assert await gateway.requests.drain(60)
    return await scraped(f"http://127.0.0.1:{gateway.admin_port}")


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Lines to print at the end of the run."""
    lines: list[str] = []
    yield lines
    request.config.stash.setdefault(TOLD, []).extend(lines)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(TOLD, []):
        terminalreporter.write_line(line)
