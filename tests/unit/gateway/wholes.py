"""A gateway's parts put together without engines and without a store: enough for what costs neither."""

from dataclasses import dataclass, field
from typing import Any

from config.model import Config
from gateway.call import Request
from gateway.clock import monotonic
from gateway.context import Context
from gateway.counting import Counter
from gateway.dispatch import Dispatch
from gateway.forecast import Forecast
from gateway.measure import Measure
from gateway.metrics import Metrics
from gateway.pipeline import Pipeline
from gateway.pools import ServedPool
from gateway.responder import Responder
from gateway.routes import Routes
from gateway.snapshot import Snapshot
from gateway.tenants import Tenants
from tests.unit.gateway.samples import SECRET, Recorder, config, responder

CREATED = 1_700_000_000


def snapshot(loaded: Config, metrics: Metrics | None = None) -> Snapshot:
    """What runs by a configuration; its pools are never spoken to."""
    pools = {name: ServedPool(pool, loaded.routing, monotonic, {}) for name, pool in loaded.pools.items()}
    counters = {model.encoding: Counter(len) for model in loaded.models.values()}
    dispatch = Dispatch(loaded.routing, metrics or Metrics(), monotonic)
    return Snapshot(loaded, Tenants(loaded, SECRET), pools, counters, dispatch, CREATED)


class NoBooks:
    """Whoever comes as far as step 3 has passed all that is tested here; `opened` says how many did."""

    def __init__(self) -> None:
        self.opened = 0

    async def open(self, *_: object) -> Any:
        self.opened += 1
        raise RuntimeError("a defect with the prompt in its text")


class NoHistories:
    """Nobody here asks for one."""


class NoSummaries:
    """No tier here asks for one."""


@dataclass
class Front:
    """Routes over a snapshot. `not_ready` is what `/readyz` says."""

    loaded: Config = field(default_factory=config)
    not_ready: str | None = None
    metrics: Metrics = field(default_factory=Metrics)
    books: NoBooks = field(default_factory=NoBooks)

    def __post_init__(self) -> None:
        forecast = Forecast()
        pipeline = Pipeline(
            Context(self.metrics, forecast.ratio),
            self.books,  # type: ignore[arg-type]
            NoHistories(),  # type: ignore[arg-type]
            forecast,
            Measure(self.metrics, monotonic),
            monotonic,
            NoSummaries(),  # type: ignore[arg-type]
        )
        self.snapshot = snapshot(self.loaded, self.metrics)
        self.routes = Routes(pipeline, lambda: self.snapshot, lambda: self.not_ready, self.metrics)

    async def ask(self, request: Request, answer: tuple[Responder, Recorder] | None = None) -> bytes:
        """The bytes of the answer."""
        to, line = answer or responder()
        await self.routes.handle(request, to)
        return line.bytes
