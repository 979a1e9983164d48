"""The circuit breaker of one replica, as a value: every event gives the next state.

The rule: only what is the replica's own fault counts. A client's mistake (4xx) and honest refusal (429, 503) are
neutral: they neither open a breaker nor close one. An open breaker lets one probe through when its time is over;
the time doubles with every probe that fails.
"""

from dataclasses import dataclass, replace
from typing import Final, Literal

Outcome = Literal["success", "neutral", "failure"]
State = Literal["closed", "open", "half_open"]


@dataclass(frozen=True, slots=True)
class BreakerSettings:
    """Opens after `consecutive_failures`, or when `failure_rate` of the last `window_calls` judged calls failed."""

    consecutive_failures: int = 5
    failure_rate: float = 0.5
    window_calls: int = 20
    open_seconds: float = 5.0
    open_cap_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """State of one breaker. `recent` holds the last judged calls as bits, newest lowest, 1 for a failure."""

    consecutive: int = 0
    recent: int = 0
    judged: int = 0
    open_until: float | None = None
    openings: int = 0
    probing: bool = False

    def state(self, now: float) -> State:
        if self.open_until is None:
            return "closed"
        return "open" if now < self.open_until else "half_open"

    def admits(self, now: float) -> bool:
        """Whether a call may go out: always when closed, one at a time when half open."""
        state = self.state(now)
        return state == "closed" or (state == "half_open" and not self.probing)


CLOSED: Final = Breaker()


def probe(breaker: Breaker) -> Breaker:
    """A call goes out through a half-open breaker."""
    return replace(breaker, probing=True)


def record(breaker: Breaker, outcome: Outcome, now: float, settings: BreakerSettings, *, probed: bool) -> Breaker:
    """The state after a call ended. `probed` says whether the call was the half-open breaker's one probe.

    Calls that were sent before the breaker opened tell nothing new and are ignored until it closes.
    """
    if probed:
        return _after_probe(breaker, outcome, now, settings)
    if breaker.open_until is not None or outcome == "neutral":
        return breaker
    spotless = breaker.judged == settings.window_calls and not (breaker.recent or breaker.consecutive)
    if spotless and outcome == "success":
        return breaker
    return _judged(breaker, outcome == "failure", now, settings)


def _after_probe(breaker: Breaker, outcome: Outcome, now: float, settings: BreakerSettings) -> Breaker:
    if outcome == "success":
        return CLOSED
    return replace(breaker, probing=False) if outcome == "neutral" else _opened(breaker, now, settings)


def _judged(breaker: Breaker, failed: bool, now: float, settings: BreakerSettings) -> Breaker:
    recent = (breaker.recent << 1 | failed) & ((1 << settings.window_calls) - 1)
    judged = min(breaker.judged + 1, settings.window_calls)
    consecutive = breaker.consecutive + 1 if failed else 0
    after = replace(breaker, consecutive=consecutive, recent=recent, judged=judged)
    often = judged == settings.window_calls and recent.bit_count() >= settings.failure_rate * judged
    opens = consecutive >= settings.consecutive_failures or (failed and often)
    return _opened(after, now, settings) if opens else after


def _opened(breaker: Breaker, now: float, settings: BreakerSettings) -> Breaker:
    # The exponent is bounded: 2.0**1024 does not exist.
    open_seconds = min(settings.open_seconds * 2.0 ** min(breaker.openings, 64), settings.open_cap_seconds)
    return Breaker(open_until=now + open_seconds, openings=breaker.openings + 1)
