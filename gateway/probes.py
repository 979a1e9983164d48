"""Asks the replicas how they are: health, context limit, load.

Rule: an engine that does not answer is not alive; one that does not tell its load has an unknown load, not none.
"""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final, TypeVar

import msgspec

from backends.engines.load import Load, parse_metrics
from backends.exchange import UpstreamFailed
from backends.health import HealthSettings, ProbeResult, watch
from backends.pool import Replica
from gateway.logs import log
from gateway.pools import ServedPool

Told = TypeVar("Told")

PATIENCE_SECONDS: Final = 5.0
"""For one question. Far less than a call may wait: a replica that hangs must be found before its calls time out."""
NO_SUCH_PATH: Final = (404, 405, 501)
DOWN_AFTER: Final = HealthSettings().down_after


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
    """Probes of one replica; the context limit is asked for once it is up and again whenever it came back.

    Why a replica does not answer is told to the operator when it is taken out, and once until it answers again.
    """

    def __init__(self, served: ServedPool, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self.served = served
        self._patience_seconds = patience_seconds
        self._max_model_len: int | None = None
        self._unanswered = 0
        self._why = ""

    async def __call__(self, replica: Replica) -> ProbeResult:
        alive = bool(await self._within_patience(self._alive(replica)))
        self._tell(replica, alive=alive)
        if not alive:
            self._max_model_len = None
            self.served.restarted(replica.name)
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
            self._why = str(error.__cause__ or error) or "it takes too long"
            error.with_traceback(None)  # it holds the exchange that holds it
            return None

    def _tell(self, replica: Replica, *, alive: bool) -> None:
        before, self._unanswered = self._unanswered, 0 if alive else self._unanswered + 1
        where = {"pool": self.served.name, "replica": replica.name}
        if self._unanswered == DOWN_AFTER:
            log(logging.WARNING, "replica does not answer", **where, why=self._why)
        elif alive and before >= DOWN_AFTER:
            log(logging.INFO, "replica answers again", **where)

    async def _alive(self, replica: Replica) -> bool:
        status, _ = await self.served.get(replica.name, "/health")
        if status in NO_SUCH_PATH:  # some servers of the OpenAI API have no health check
            status, _ = await self.served.get(replica.name, "/v1/models")
        self._why = f"it answers {status}"
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
