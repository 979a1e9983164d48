"""A new configuration without a restart: on SIGHUP, or when the file changes.

Rule: a file with mistakes changes nothing and says so, in the log and in the metrics; the old configuration goes on.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

from config import load as loading
from config.model import Config
from config.problems import ConfigError
from gateway.logs import log
from gateway.metrics import Metrics

LOOK_EVERY_SECONDS: Final = 1.0

State = tuple[int, int, int]


class Reloading:
    """Watches one file. `put(config)` puts a checked configuration into force.

    `seen`: the state of the file when it was read that is in force; what has changed since is not missed.
    """

    def __init__(
        self, file: Path, put: Callable[[Config], Awaitable[None]], metrics: Metrics, seen: State | None = None
    ) -> None:
        self._file = file
        self._put = put
        self._metrics = metrics
        self._asked = asyncio.Event()
        self._seen = seen or state_of(file)

    def ask(self) -> None:
        """Reload now, changed or not: what SIGHUP does."""
        self._asked.set()

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            try:
                async with asyncio.timeout(LOOK_EVERY_SECONDS):
                    await self._asked.wait()
            except TimeoutError:
                if state_of(self._file) in (self._seen, None):
                    continue
            self._asked.clear()
            self._seen = state_of(self._file)
            await self.reload()

    async def reload(self) -> None:
        """Read the file and put it into force, or say what is wrong with it."""
        try:
            await self._put(await asyncio.to_thread(loading.load, self._file))
        except ConfigError as error:
            self._kept([str(problem) for problem in error.problems])
        except (ValueError, OSError) as error:
            self._kept([str(error)])
        else:
            self._metrics.reloads.add(1, "done")
            log(logging.INFO, "configuration reloaded")

    def _kept(self, problems: list[str]) -> None:
        self._metrics.reloads.add(1, "refused")
        log(logging.ERROR, "configuration kept: the new file has mistakes", problems=problems)


def state_of(file: Path) -> State | None:
    """What tells one content from another without reading it; `None` while there is no file."""
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino
