"""A pool of like replicas: who may use which, and how long a call waits when all are busy.

The rule: a lease is the one way to a replica and it is always given back, whatever becomes of the call. Calls wait
in the order they came, at most until their own deadline; a call is told no at once when no replica could take it.
The breakers never take the pool below its floor: when nearly everything fails, the cause is seldom the replicas.
All of this is memory of one process and may be lost at any moment.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from backends import breaker
from backends.breaker import Breaker, BreakerSettings, Outcome
from backends.demand import Demand, Phase
from backends.engines.kind import EngineKind
from backends.engines.load import Load
from backends.lease import Lease, Replica, Seat
from backends.select import ReplicaState, preferred

Clock = Callable[[], float]
__all__ = ["Clock", "Lease", "NoReplica", "Pool", "PoolSettings", "Reason", "Replica"]

USUAL_SECONDS: Final = 1.0
"""What a call of others is taken for until calls of our own tell."""
USUAL_STEP: Final = 0.05
Reason = Literal["saturated", "unhealthy", "draining", "timeout"]


@dataclass(frozen=True, slots=True)
class NoReplica:
    """No lease, and why.

    saturated: the queue is full. timeout: the deadline came first. draining: every replica is. unhealthy: otherwise no
    replica that is not excluded may take calls.
    """

    reason: Reason


@dataclass(frozen=True, slots=True)
class PoolSettings:
    """How a pool chooses and how long its queue may be.

    `affinity_slack_seconds`: how far behind a session's home may be and still be chosen. `max_waiting`: calls that may
    queue. `floor`: the part of the replicas that breakers must leave in use, at least one replica.
    """

    affinity_slack_seconds: float = 2.0
    max_waiting: int = 1024
    floor: float = 0.34
    breaker: BreakerSettings = field(default_factory=BreakerSettings)


@dataclass(frozen=True, slots=True)
class _Waiting:
    demand: Demand
    exclude: frozenset[str]


class Pool:
    """Replicas with the same engine and model. `clock` gives seconds and never goes back."""

    def __init__(
        self,
        name: str,
        replicas: Sequence[Replica],
        *,
        engine: EngineKind,
        clock: Clock,
        phase: Phase | None = None,
        settings: PoolSettings | None = None,
    ) -> None:
        self.name, self.engine, self.phase = name, engine, phase
        self.settings = settings or PoolSettings()
        self._clock = clock
        self._seats: Mapping[str, Seat] = {replica.name: Seat(replica) for replica in replicas}
        self._waiting: dict[asyncio.Future[Lease | NoReplica], _Waiting] = {}  # oldest first
        self._open: Sequence[Seat] = ()  # those whose breaker is
        self._tie = 0
        self._usual_seconds = USUAL_SECONDS

    async def lease(
        self, demand: Demand, exclude: frozenset[str] = frozenset(), *, deadline: float
    ) -> Lease | NoReplica:
        """A lease on the best replica outside `exclude`; waits for a free one until `deadline`, on the pool's clock."""
        if (answer := self.at_once(demand, exclude)) is not None:
            return answer
        left_seconds = deadline - self._clock()
        if left_seconds <= 0:
            return NoReplica("timeout")
        if len(self._waiting) >= self.settings.max_waiting:
            return NoReplica("saturated")
        return await self._wait(_Waiting(demand, exclude), left_seconds)

    def at_once(self, demand: Demand, exclude: frozenset[str] = frozenset()) -> Lease | NoReplica | None:
        """The same without waiting. None: `lease` would."""
        if self._waiting:
            self._dispatch()  # a breaker may have become half open since; those who wait go first
        return self._answer(demand, exclude)

    async def _wait(self, waiting: _Waiting, left_seconds: float) -> Lease | NoReplica:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Lease | NoReplica] = loop.create_future()
        self._waiting[answer] = waiting
        timer = loop.call_later(left_seconds, _answer_once, answer, NoReplica("timeout"))
        try:
            return await answer
        except asyncio.CancelledError:
            # The lease may have been granted in the very turn in which the caller was cancelled.
            if answer.done() and not answer.cancelled() and isinstance(granted := answer.result(), Lease):
                granted.release("neutral")
            raise
        finally:
            timer.cancel()
            self._waiting.pop(answer, None)

    def wake(self) -> None:
        """Look at those who wait again: time alone may have made room. Called about twice a second."""
        self._dispatch()

    def _dispatch(self) -> None:
        """Serve those who wait, in order, as far as there is room for them."""
        if not self._waiting:
            return
        for future, waiting in list(self._waiting.items()):
            eligible = [state for state in self.states() if state.eligible]
            if eligible and all(state.full for state in eligible):
                return
            if future.done():
                continue
            answer = self._answer(waiting.demand, waiting.exclude)
            if answer is not None:
                del self._waiting[future]
                future.set_result(answer)

    def _answer(self, demand: Demand, exclude: frozenset[str]) -> Lease | NoReplica | None:
        """A lease, or that there can be none, or None: wait."""
        now = self._clock()
        free = [seat for seat in self._seats.values() if seat.free(now)]
        if exclude or self._open:
            shut = self._shut(now)
            free = [seat for seat in free if seat.name not in exclude and seat not in shut]
        if free:
            seat = preferred(free, demand.home, self.settings.affinity_slack_seconds, self._tie)
            self._tie += 1
            return self._grant(seat, demand)
        able = [state for state in self.states() if state.name not in exclude]
        if any(state.eligible for state in able):
            return None
        return NoReplica("draining" if able and all(state.draining for state in able) else "unhealthy")

    def _grant(self, seat: Seat, demand: Demand) -> Lease:
        probe = False
        if seat.breaker.open_until is not None:
            probe = seat.breaker.state(self._clock()) == "half_open" and not seat.breaker.probing
            if probe:
                self._turn(seat, breaker.probe(seat.breaker))
        self._usual_seconds += USUAL_STEP * (demand.prefill_seconds + demand.decode_seconds - self._usual_seconds)
        return Lease(seat, demand, self._judge, probe=probe)

    def _judge(self, seat: Seat, outcome: Outcome, probe: bool) -> None:
        after = breaker.record(seat.breaker, outcome, self._clock(), self.settings.breaker, probed=probe)
        if after is not seat.breaker:
            self._turn(seat, after)
        if self._waiting:
            self._dispatch()

    def _turn(self, seat: Seat, after: Breaker) -> None:
        seat.breaker = after
        self._open = [seat for seat in self._seats.values() if seat.breaker.open_until is not None]

    def states(self) -> tuple[ReplicaState, ...]:
        now = self._clock()
        shut = self._shut(now)
        return tuple([seat.state(seat in shut, seat.resting_until > now) for seat in self._seats.values()])

    def _shut(self, now: float) -> Sequence[Seat]:
        """Those that a breaker keeps out of use."""
        shut = [seat for seat in self._open if not seat.breaker.admits(now)]
        kept = self._kept(shut) if shut else ()
        return [seat for seat in shut if seat not in kept]

    def _kept(self, shut: Sequence[Seat]) -> Sequence[Seat]:
        """Those that stay in use although their breaker is open, so that the floor is kept: the soonest due first."""
        usable = [seat for seat in self._seats.values() if seat.healthy and not seat.draining]
        floor = max(1, int(self.settings.floor * len(self._seats)))
        missing = floor - sum(seat not in shut for seat in usable)
        candidates = sorted((seat for seat in shut if seat in usable), key=lambda seat: seat.breaker.open_until or 0.0)
        return candidates[: max(0, missing)]

    # What health checks and operators tell the pool, and what it tells them.

    def set_health(self, name: str, healthy: bool) -> None:
        self._seats[name].healthy = healthy
        self._dispatch()

    def drain(self, name: str, draining: bool = True) -> None:
        """Stop (or start again) giving out leases on a replica; those given out run on."""
        self._seats[name].draining = draining
        self._dispatch()

    def in_flight(self, name: str) -> int:
        return self._seats[name].in_flight

    def learn(self, name: str, *, load: Load | None, max_model_len: int | None, own_calls: int = 0) -> None:
        """Keep what a probe saw; None keeps the model length known before, and says that the load is unknown.

        `own_calls` were in flight when it was asked: some may have ended since, but not where the numbers were taken.
        """
        seat = self._seats[name]
        seat.learn(load, max(own_calls, seat.in_flight), self._usual_seconds, self._clock())
        seat.max_model_len = max_model_len or seat.max_model_len

    @property
    def replicas(self) -> tuple[Replica, ...]:
        return tuple(seat.replica for seat in self._seats.values())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def max_model_len(self) -> int | None:
        """The smallest context limit that a replica reported: what every one of them can take."""
        return min((seat.max_model_len for seat in self._seats.values() if seat.max_model_len), default=None)

    def running(self, name: str) -> int:
        """Sequences that a replica runs: as it last said, else calls of this process there; at least one."""
        seat = self._seats[name]
        told = seat.load.running if seat.load is not None else None
        return (seat.in_flight if told is None else told) or 1

    @property
    def usual_running(self) -> float:
        """The same on average over the replicas."""
        return sum(map(self.running, self._seats)) / len(self._seats)

    def load(self, name: str) -> Load | None:
        return self._seats[name].load

    def breaker_state(self, name: str) -> breaker.State:
        return self._seats[name].breaker.state(self._clock())

    def __repr__(self) -> str:
        seats = " ".join(f"{s.name}:{s.in_flight}{'' if s.eligible else '!'}" for s in self.states())
        return f"<Pool {self.name} {seats} waiting:{self.waiting}>"


def _answer_once(future: asyncio.Future[Lease | NoReplica], answer: Lease | NoReplica) -> None:
    if not future.done():
        future.set_result(answer)
