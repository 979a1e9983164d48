"""A replica, its seat in a pool, and the lease that lets one call use it.

The rule: whatever becomes of a call, what it added to the seat is taken off again exactly once.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from backends import breaker
from backends.breaker import Breaker, Outcome
from backends.demand import Demand
from backends.engines.load import Load
from backends.pressure import UNTOLD, Freshness, extra_calls
from backends.select import STALE_SECONDS, ReplicaState

Judge = Callable[["Seat", Outcome, bool], None]


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine server. `max_concurrent` bounds the calls of this process alone; None means no limit of ours."""

    name: str
    url: str
    max_concurrent: int | None = None


@dataclass(slots=True, eq=False)
class Seat:
    """What the pool knows of one replica. Seats are compared by identity."""

    replica: Replica
    name: str = field(init=False)
    most: float = field(init=False)
    in_flight: int = 0
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    breaker: Breaker = breaker.CLOSED
    draining: bool = False
    healthy: bool = True
    load: Load | None = None
    freshness: Freshness = UNTOLD
    extra_seconds: float = 0.0
    max_model_len: int | None = None
    resting_until: float = 0.0

    def __post_init__(self) -> None:
        most = self.replica.max_concurrent
        self.name, self.most = self.replica.name, math.inf if most is None else most

    @property
    def work_seconds(self) -> float:
        return self.prefill_seconds + self.decode_seconds + self.extra_seconds

    def free(self, now: float) -> bool:
        """Whether it has room for one more call, if its breaker lets any through."""
        return self.in_flight < self.most and self.resting_until <= now and self.healthy and not self.draining

    def state(self, ejected: bool, resting: bool = False) -> ReplicaState:
        return ReplicaState(
            self.name,
            self.in_flight,
            self.replica.max_concurrent,
            self.prefill_seconds,
            self.decode_seconds,
            self.draining,
            self.healthy,
            ejected,
            resting,
            self.extra_seconds,
        )

    def learn(self, load: Load | None, own_calls: int, usual_seconds: float, now: float) -> None:
        """Take in what a probe was told; `own_calls` of its calls are ours, and one takes `usual_seconds`."""
        self.load, self.freshness = load, self.freshness.after(load, now)
        self.extra_seconds = extra_calls(load, own_calls) * usual_seconds if load is not None else 0.0
        if self.freshness.stale(now):
            self.extra_seconds += STALE_SECONDS


class Lease:
    """The right to use one replica for one call, whose work stands against the replica until it is given back.

    Use it as a context: leaving it gives the lease back as `neutral`, unless `release` said before what was learned.
    """

    __slots__ = ("_demand", "_judge", "_prefill_seconds", "_probe", "_released", "_seat", "name")

    def __init__(self, seat: Seat, demand: Demand, judge: Judge, *, probe: bool) -> None:
        self.name = seat.name  # of the replica
        self._seat, self._demand, self._judge, self._probe = seat, demand, judge, probe
        self._prefill_seconds = demand.prefill_seconds
        self._released = False
        seat.in_flight += 1
        seat.prefill_seconds += demand.prefill_seconds
        seat.decode_seconds += demand.decode_seconds

    @property
    def replica(self) -> Replica:
        return self._seat.replica

    def first_token(self) -> None:
        """The prefill is done: its work no longer stands against the replica. Later calls do nothing.

        A probe has then shown what it was sent to show; a long decode must not keep all other calls out.
        """
        if self._released:
            return
        self._seat.prefill_seconds -= self._prefill_seconds
        self._prefill_seconds = 0.0
        if self._probe:
            self._probe = False
            self._judge(self._seat, "success", True)

    def rest(self, until: float) -> None:
        """The replica asked to be left alone until then, on the pool's clock."""
        self._seat.resting_until = max(self._seat.resting_until, until)

    def release(self, outcome: Outcome) -> None:
        """Give the lease back. The first outcome counts, later calls do nothing."""
        if self._released:
            return
        self._released = True
        seat = self._seat
        seat.in_flight -= 1
        if seat.in_flight:
            seat.prefill_seconds -= self._prefill_seconds
            seat.decode_seconds -= self._demand.decode_seconds
        else:  # what rounding left over would make an idle replica look busy for ever
            seat.prefill_seconds = seat.decode_seconds = 0.0
        self._judge(seat, outcome, self._probe)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release("neutral")

    def __repr__(self) -> str:
        return f"<Lease {self.replica.name}{' probe' if self._probe else ''}{' released' if self._released else ''}>"
