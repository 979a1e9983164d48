"""The pools of a configuration as the gateway uses them: choice, connections, credentials, what their engines know.

Rule: an engine sees its pool's own key and headers that we made; nothing of a tenant's credential goes further than
`tenants.py`.
"""

import logging
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

from backends.demand import Phase
from backends.engines import ENGINES
from backends.exchange import Exchange
from backends.pool import Pool, PoolSettings, Replica
from backends.retry import RetryBudget
from backends.transport import Transport
from budgets.geometry import Geometry
from config import pools
from config.routing import Routing
from gateway.clock import Clock
from gateway.logs import log
from gateway.pace import Pace
from gateway.tasks import OnFailure, Tasks

REFUSAL_SECONDS: Final = 600.0
"""How long a refusal is believed: asking once more costs one stream a second round trip."""


@dataclass(frozen=True, slots=True)
class Wire:
    """How one replica is spoken to: its connections and the head that all requests to it share."""

    transport: Transport
    head: bytes

    def request(self, method: bytes, path: bytes, headers: bytes, body: bytes) -> bytes:
        """A whole HTTP request. `headers` are finished header lines."""
        length = b"content-length: %d\r\n\r\n" % len(body)
        return b"".join((method, b" ", path, b" HTTP/1.1\r\n", self.head, headers, length, body))


class ServedPool:
    """One pool: its configuration, its replicas' state, a wire to each of them."""

    def __init__(
        self,
        settings: pools.Pool,
        routing: Routing,
        clock: Clock,
        environ: Mapping[str, str],
        workers: int = 1,
        on_failure: OnFailure | None = None,
        worker: int = 0,
    ) -> None:
        self.settings = settings
        self.name = settings.name
        self.tasks = Tasks(on_failure)
        self.retries = RetryBudget()
        self.features = settings.features
        self.without_usage = settings.features.model_copy(update={"usage_in_stream": False})
        self.refusing: dict[str, float] = {}  # replicas that refused `stream_options`, and until when that is believed
        self._clock = clock
        self.engine = ENGINES[settings.engine]
        slots = share(settings.max_concurrent, workers, worker)
        phase: Phase | None = None if settings.phase == "any" else settings.phase
        self.pool = Pool(
            settings.name,
            [Replica(replica.name, replica.url, slots) for replica in settings.replicas],
            engine=settings.engine,
            clock=clock,
            phase=phase,
            settings=PoolSettings(
                affinity_slack_seconds=routing.affinity_slack_seconds, max_waiting=routing.max_waiting
            ),
        )
        key = engine_key(settings, environ)
        self._paces: WeakValueDictionary[Geometry, Pace] = WeakValueDictionary()
        self._wires = {replica.name: _wire(replica, key, routing, clock) for replica in settings.replicas}

    def pace(self, geometry: Geometry) -> Pace:
        """How long a model takes here: one for all callers, kept as long as one of them has it."""
        if (pace := self._paces.get(geometry)) is None:
            pace = self._paces[geometry] = Pace(geometry, self.settings.hardware)
        return pace

    def paces(self) -> list[Pace]:
        """Those of all models in use."""
        return list(self._paces.values())

    def features_of(self, replica: str) -> pools.Features:
        """What a replica understands: what its pool declares, less what it has refused."""
        until = self.refusing.get(replica)
        return self.features if until is None or until < self._clock() else self.without_usage

    def refuses_usage(self, replica: str) -> None:
        """A replica does not take `stream_options`: for a time its streams go without at once."""
        if replica not in self.refusing:
            log(logging.WARNING, "stream_options are refused, usage is counted", pool=self.name, replica=replica)
        self.refusing[replica] = self._clock() + REFUSAL_SECONDS

    def restarted(self, replica: str) -> None:
        """A replica was away: what comes back may be another version of its engine."""
        self.refusing.pop(replica, None)

    def has(self, replica: str) -> bool:
        return replica in self._wires

    def sweep(self) -> None:
        """End what is past its time and serve who waited for time to pass; called about twice a second."""
        self.pool.wake()
        for wire in self._wires.values():
            wire.transport.sweep()

    @property
    def busy(self) -> bool:
        """Whether calls are at its replicas or wait for one."""
        return self.pool.waiting > 0 or any(state.in_flight for state in self.pool.states())

    @property
    def open_connections(self) -> int:
        return sum(wire.transport.open_connections for wire in self._wires.values())

    async def close(self) -> None:
        """Stop the probes and close every connection."""
        await self.tasks.close()
        for wire in self._wires.values():
            wire.transport.close()

    def open(self, replica: str, path: bytes, headers: bytes, body: bytes) -> Coroutine[Any, Any, Exchange]:
        """Send a call to a replica and wait for the head of its answer. Raises `UpstreamFailed`."""
        wire = self._wires[replica]
        return wire.transport.open(wire.request(b"POST", path, headers, body))

    async def get(self, replica: str, path: str) -> tuple[int, bytes]:
        """Status and body of a GET: health, models, metrics. Raises `UpstreamFailed`."""
        wire = self._wires[replica]
        exchange = await wire.transport.open(wire.request(b"GET", path.encode("ascii"), b"", b""))
        try:
            head = await exchange.head
            return head.status, await exchange.body()
        finally:
            exchange.abort()  # does nothing to one that ended


def share(slots: int, workers: int, worker: int) -> int:
    """A worker's part of a replica's slots: all of them together have just these, but each one at least."""
    return max(1, slots // workers + (worker < slots % workers))


def engine_key(settings: pools.Pool, environ: Mapping[str, str]) -> str | None:
    """The pool's own key. Raises `ValueError` if the file names a variable that is not set."""
    if settings.engine_key is None:
        return None
    if (key := settings.engine_key.read(environ)) is None:
        raise ValueError(f"pools.{settings.name}.engine_key: set the variable {settings.engine_key.variable}")
    return key


def _wire(replica: pools.Replica, key: str | None, routing: Routing, clock: Clock) -> Wire:
    transport = Transport(
        replica.url,
        clock=clock,
        connect_seconds=routing.connect_timeout_seconds,
        first_byte_seconds=routing.first_token_timeout_seconds,
        idle_seconds=routing.idle_timeout_seconds,
    )
    lines = [b"host: " + transport.authority, b"content-type: application/json", b"accept-encoding: identity"]
    if key:
        lines.append(b"authorization: Bearer " + key.encode("latin-1"))
    return Wire(transport, b"".join(line + b"\r\n" for line in lines))
