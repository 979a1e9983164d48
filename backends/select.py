"""Chooses the replica for a call.

The rule: least outstanding work, in seconds; the session's home wins while it is at most a slack behind. Affinity
is a score and no switch: a busy home loses one call, not the session. Equals take turns, so that an idle pool does
not send everything to its first replica.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from backends.demand import Demand

# Sums of floats that should be equal differ in their last digits.
_TIE_SECONDS: Final = 1e-6
STALE_SECONDS: Final = 1e6
"""Work laid on a replica whose numbers are stale: more than any replica has, so it comes last."""


class Busy(Protocol):
    """What a choice among replicas that have room goes by."""

    @property
    def name(self) -> str: ...
    @property
    def in_flight(self) -> int: ...
    @property
    def work_seconds(self) -> float: ...


T = TypeVar("T", bound=Busy)


class ReplicaState(NamedTuple):
    """One replica as this process sees it.

    `prefill_seconds`: predicted prefill of calls that have not had their first token; `decode_seconds`: predicted
    decode of all calls in flight. `max_concurrent` None means no limit. `extra_seconds` is work that the engine tells
    of and this process did not send.
    """

    name: str
    in_flight: int = 0
    max_concurrent: int | None = None
    prefill_seconds: float = 0.0
    decode_seconds: float = 0.0
    draining: bool = False
    healthy: bool = True
    ejected: bool = False
    resting: bool = False
    extra_seconds: float = 0.0

    @property
    def work_seconds(self) -> float:
        return self.prefill_seconds + self.decode_seconds + self.extra_seconds

    @property
    def stale(self) -> bool:
        """Whether what the engine tells of itself stopped being fresh."""
        return self.extra_seconds >= STALE_SECONDS

    @property
    def full(self) -> bool:
        """Whether it has no room just now: all slots are taken, or it asked to be left alone for a moment."""
        return self.resting or (self.max_concurrent is not None and self.in_flight >= self.max_concurrent)

    @property
    def eligible(self) -> bool:
        """Whether it may take calls at all, be it full or not."""
        return self.healthy and not self.draining and not self.ejected


def select(
    replicas: Sequence[ReplicaState],
    demand: Demand,
    *,
    affinity_slack_seconds: float,
    tie: int,
    exclude: frozenset[str] = frozenset(),
) -> str | None:
    """The name of the replica to use, or None if none has room. `tie` is any number that grows from call to call."""
    free = [state for state in replicas if state.eligible and not state.full and state.name not in exclude]
    return preferred(free, demand.home, affinity_slack_seconds, tie).name if free else None


def preferred(free: Sequence[T], home: str | None, slack_seconds: float, tie: int) -> T:
    """The one to use of replicas that have room, of which there is at least one."""
    if len(free) == 1:
        return free[0]
    least = min([each.work_seconds for each in free])
    for each in free:
        if each.name == home and each.work_seconds <= least + slack_seconds:
            return each
    idlest = [each for each in free if each.work_seconds <= least + _TIE_SECONDS]
    fewest = min([each.in_flight for each in idlest])
    equals = [each for each in idlest if each.in_flight == fewest]
    return equals[tie % len(equals)]
