"""Asks the replicas how they are: health, context limit, load.

Rule: an engine that does not answer is not alive; one that does not tell its load has an unknown load, not none.
"""

import asyncio

import msgspec

from backends.engines.load import Load, parse_metrics
from backends.exchange import UpstreamFailed
from backends.health import HealthSettings, ProbeResult, watch
from backends.pool import Replica
from gateway.pools import ServedPool


class _Card(msgspec.Struct):
    id: str
    max_model_len: int | None = None


class _Cards(msgspec.Struct):
    data: list[_Card]


_CARDS = msgspec.json.Decoder(_Cards)


def start(served: ServedPool, settings: HealthSettings) -> None:
    """One task for every replica of a pool, until the pool is closed."""
    for replica in served.pool.replicas:
        work = watch(served.pool, replica, Prober(served), asyncio.sleep, settings)
        served.tasks.start(work, name=f"probe {served.name}/{replica.name}")


class Prober:
    """Probes of one replica; the context limit is asked for once it is up and again whenever it came back."""

    def __init__(self, served: ServedPool) -> None:
        self._served = served
        self._max_model_len: int | None = None

    async def __call__(self, replica: Replica) -> ProbeResult:
        try:
            status, _ = await self._served.get(replica.name, "/health")
            if status >= 400:
                self._max_model_len = None
                return ProbeResult(alive=False)
            if self._max_model_len is None:
                self._max_model_len = await self._limit(replica)
            return ProbeResult(True, self._max_model_len, await self._load(replica))
        except UpstreamFailed:
            self._max_model_len = None
            return ProbeResult(alive=False)

    async def _limit(self, replica: Replica) -> int | None:
        status, body = await self._served.get(replica.name, "/v1/models")
        try:
            limits = [card.max_model_len for card in _CARDS.decode(body).data] if status == 200 else []
        except msgspec.DecodeError:
            return None
        return min((limit for limit in limits if limit is not None), default=None)

    async def _load(self, replica: Replica) -> Load | None:
        status, body = await self._served.get(replica.name, "/metrics")
        if status != 200:
            return None
        return parse_metrics(body.decode("utf-8", "replace"), self._served.engine.metrics)
