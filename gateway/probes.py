"""Asks the replicas how they are: health, context limit, load.

Rule: an engine that does not answer is not alive; one that does not tell its load has an unknown load, not none.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, TypeVar

import msgspec

from backends.engines.load import Load, parse_metrics
from backends.exchange import UpstreamFailed
from backends.health import HealthSettings, ProbeResult, watch
from backends.pool import Replica
from gateway.pools import ServedPool

Told = TypeVar("Told")

PATIENCE_SECONDS: Final = 5.0
"""For one question. Far less than a call may wait: a replica that hangs must be found before its calls time out."""
NO_SUCH_PATH: Final = (404, 405, 501)


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

    def __init__(self, served: ServedPool, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.served = served
        self._patience_seconds = patience_seconds
        self._max_model_len: int | None = None

    async def __call__(self, replica: Replica) -> ProbeResult:
        if not await self._within_patience(self._alive(replica)):
            self._max_model_len = None
            return ProbeResult(alive=False)
        if self._max_model_len is None:
            self._max_model_len = await self._within_patience(self._limit(replica))
        return ProbeResult(True, self._max_model_len, await self._within_patience(self._load(replica)))

    async def _within_patience(self, asking: Awaitable[Told]) -> Told | None:
        """What the replica says; `None` if it does not answer in time."""
        try:
            async with asyncio.timeout(self._patience_seconds):
                return await asking
        except (UpstreamFailed, TimeoutError) as error:
            error.with_traceback(None)  # it holds the exchange that holds it
            return None

    async def _alive(self, replica: Replica) -> bool:
        status, _ = await self.served.get(replica.name, "/health")
        if status in NO_SUCH_PATH:  # some servers of the OpenAI API have no health check
            status, _ = await self.served.get(replica.name, "/v1/models")
        return status < 400

    async def _limit(self, replica: Replica) -> int | None:
        status, body = await self.served.get(replica.name, "/v1/models")
        try:
            limits = [card.max_model_len for card in _CARDS.decode(body).data] if status == 200 else []
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        return min((limit for limit in limits if limit is not None), default=None)

    async def _load(self, replica: Replica) -> Load | None:
        status, body = await self.served.get(replica.name, "/metrics")
        if status != 200:
            return None
        return parse_metrics(body.decode("utf-8", "replace"), self.served.engine.metrics)
