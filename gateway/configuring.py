"""From a configuration to what runs by it, and from one configuration to the next.

Rule: built aside and swapped by one reference; what did not change is kept, with its connections, its breakers and its
counts. A pool that is gone serves its open calls to the end before it is closed.
"""

import asyncio
import os
import time
from collections.abc import Mapping
from typing import Final

from backends.health import HealthSettings
from config.model import Config
from gateway import probes, sweeping
from gateway.clock import monotonic
from gateway.counting import Counter
from gateway.dispatch import Dispatch
from gateway.metrics import Metrics
from gateway.pools import ServedPool
from gateway.roster import Roster
from gateway.snapshot import Snapshot
from gateway.tasks import Tasks
from gateway.tenants import Tenants
from gateway.tokens import counter

LATE_SECONDS: Final = 60.0
"""How long a call takes at most from the configuration it begins with to a replica, beside its wait for one."""


class Configuring:
    """Makes snapshots. `secret` is the deployment's; `background` outlives every one of them.

    Each of `workers` has its share of a replica's slots; this one is number `worker`. `roster`: what the store knows of
    tenants.
    """

    def __init__(
        self,
        secret: bytes,
        metrics: Metrics,
        background: Tasks,
        workers: int = 1,
        roster: Roster | None = None,
        worker: int = 0,
    ) -> None:
        self._workers, self._worker = workers, worker
        self._roster = roster
        self._secret = secret
        self._metrics = metrics
        self._background = background

    async def snapshot(self, config: Config, previous: Snapshot | None = None) -> Snapshot:
        """What runs by `config`. Raises `ValueError` or `OSError`: an encoding cannot be read, a key is not set."""
        counters = await self._counters(config, previous)
        pools = self._pools(config, previous)
        made = Snapshot(
            config,
            Tenants(config, self._secret, self._roster),
            pools,
            counters,
            Dispatch(config.routing, self._metrics, monotonic),
            int(time.time()),
            None if previous is None else previous.kept,
        )
        for pool in previous.pools.values() if previous is not None else ():
            if pools.get(pool.name) is not pool:
                late_seconds = previous.config.routing.queue_timeout_seconds + LATE_SECONDS if previous else 0.0
                self._background.start(retire(pool, late_seconds), name=f"retire {pool.name}")
        return made

    async def _counters(self, config: Config, previous: Snapshot | None) -> Mapping[str, Counter]:
        """Encodings take half a second to read: in a thread, and once."""
        known = dict(previous.counters) if previous is not None else {}
        for model in config.models.values():
            if model.encoding not in known:
                known[model.encoding] = Counter(await asyncio.to_thread(counter, model.encoding))
        return known

    def _pools(self, config: Config, previous: Snapshot | None) -> dict[str, ServedPool]:
        kept = {}
        if previous is not None and previous.config.routing == config.routing:
            kept = {name: pool for name, pool in previous.pools.items() if pool.settings == config.pools.get(name)}
        pools = {name: kept.get(name) or self._new_pool(config, name) for name in config.pools}
        for name in pools.keys() - kept.keys():  # once all of them could be made: a mistake leaves nothing running
            probes.start(pools[name], HealthSettings(config.routing.probe_interval_seconds))
        return pools

    def _new_pool(self, config: Config, name: str) -> ServedPool:
        return ServedPool(
            config.pools[name],
            config.routing,
            monotonic,
            os.environ,
            self._workers,
            self._background.on_failure,
            self._worker,
        )


async def retire(pool: ServedPool, late_seconds: float) -> None:
    """Let a pool that is no longer configured finish its calls, then close it.

    Calls that had begun before may come to it for as long as `late_seconds`; its limits hold for them too.
    """
    try:
        await pool.tasks.close()  # nobody chooses by what probes tell any more
        until = monotonic() + late_seconds
        while monotonic() < until or pool.busy:
            await asyncio.sleep(sweeping.INTERVAL_SECONDS)
            pool.sweep()
    finally:
        await pool.close()
