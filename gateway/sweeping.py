"""Twice a second: ends what is past its time, on both sides.

Rule: one timer for all connections, not one for each.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

from gateway.pools import ServedPool
from gateway.server import Server
from gateway.tasks import Tasks

INTERVAL_SECONDS: Final = 0.5


def start(server: Server, pools: Callable[[], Mapping[str, ServedPool]], tasks: Tasks) -> None:
    """Sweep until the tasks are closed."""
    tasks.start(_sweep(server, pools), name="sweep")


async def _sweep(server: Server, pools: Callable[[], Mapping[str, ServedPool]]) -> None:
    while True:
        await asyncio.sleep(INTERVAL_SECONDS)
        server.sweep()
        for pool in pools().values():
            pool.sweep()
