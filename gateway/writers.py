"""Who writes records, and who is left alone for a time because that came to nothing too often.

Rule: a tenant's writers are judged by that tenant's conversations, nobody else's fail for it. Memory of one process,
expendable at any moment.
"""

from typing import Final

from backends.breaker import CLOSED, Breaker, BreakerSettings, Outcome, probe, record
from gateway.source import Source

SETTINGS: Final = BreakerSettings(consecutive_failures=3, open_seconds=30.0, open_cap_seconds=1_800.0)
MOST: Final = 10_000
"""Writers that did not write well last time; the oldest are forgotten."""

Key = tuple[str, str, str]


class Writers:
    """A breaker for each tenant, model and pool that has failed."""

    def __init__(self) -> None:
        self._breakers: dict[Key, Breaker] = {}

    def admits(self, source: Source, now: float) -> bool:
        """Whether the writer of a record may be asked."""
        return self._of(source).admits(now)

    def probes(self, source: Source, now: float) -> bool:
        """Whether the call that goes out now is the one that a resting writer is tried with."""
        breaker = self._of(source)
        if breaker.state(now) != "half_open":
            return False
        self._keep(source, probe(breaker))
        return True

    def judge(self, source: Source, outcome: Outcome, now: float, *, probed: bool) -> None:
        """A call has ended."""
        self._keep(source, record(self._of(source), outcome, now, SETTINGS, probed=probed))

    def _of(self, source: Source) -> Breaker:
        return self._breakers.get(_key(source), CLOSED)

    def _keep(self, source: Source, breaker: Breaker) -> None:
        self._breakers.pop(_key(source), None)
        if breaker.consecutive or breaker.recent or breaker.open_until is not None:
            self._breakers[_key(source)] = breaker
        while len(self._breakers) > MOST:
            self._breakers.pop(next(iter(self._breakers)))


def _key(source: Source) -> Key:
    policy = source.policy
    return source.service.caller.tenant, policy.model or source.service.model.name, policy.pool or ""
