"""What an engine's prefix cache was expected to hold of a session, against what it says that it found.

Rule: looked at only for calls that continue a session. What we broke ourselves is known before the call is sent; what
the engine lost shows in its report, and where it reports nothing, nothing is claimed.
"""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from gateway.context import Planned
from gateway.delivery import Delivery
from gateway.metrics import Metrics
from gateway.pools import ServedPool
from gateway.reports import asks
from gateway.sessions import Session

Break = Literal["expected", "compacted", "ttl", "unexpected"]
"""Our edits changed what was sent or the call went to another replica; they dropped messages; the session had rested
for long; none of these."""

MISSING_SHARE: Final = 0.05
GUESSED_SHARE: Final = 0.25
"""Of a prefix that was not counted but guessed by its bytes."""
MISSING_TOKENS: Final = 256
"""A cache holds whole blocks, and our counts are not the engine's: less than either is no break."""
RESTED_SECONDS: Final = 300.0
"""After so long a rest it is no wonder that a prefix is gone."""
COLD_SECONDS: Final = 3600.0
"""After so long a rest nothing of it is taken to be there."""
REPLAN: Final = b"x-kvgate-replan"
"""A client that sends it has its session's edits decided anew, by the policies of today."""


class Prefix(msgspec.Struct, frozen=True):
    """`tokens` at the front of the prompt have been sent to `home` before, unchanged; `new_tokens` stand behind them,
    where they were counted."""

    tokens: int
    home: str | None
    idle_seconds: float
    counted: bool = True
    broken: Break | None = None
    new_tokens: int | None = None

    def of(self, prompt_tokens: int) -> int:
        """How much of it the engine has, whose prompt has so many tokens: a template may leave out what we count, such
        as the reasoning of earlier turns."""
        return self.tokens if self.new_tokens is None else min(self.tokens, max(0, prompt_tokens - self.new_tokens))


def is_cold(session: Session, pools: Sequence[ServedPool], headers: Mapping[bytes, bytes]) -> bool:
    """Whether a session's edits are to be decided anew: no engine holds its prefix any more, or the client says so."""
    if REPLAN in headers and asks(headers[REPLAN]):
        return True
    gone = session.home is not None and not any(pool.has(session.home) for pool in pools)
    return gone or session.idle_seconds >= COLD_SECONDS


def prefix_of(planned: Planned, session: Session, tokens: int) -> Prefix | None:
    """What is expected of the cache; None for a call that continues nothing."""
    if not session.known_messages:
        return None
    broken: Break | None = None
    if "cold" in planned.reasons:
        broken = "ttl" if session.idle_seconds >= RESTED_SECONDS else "expected"
    elif planned.again_tokens:
        broken = "compacted" if planned.drops else "expected"
    new_tokens = max(0, planned.sent_tokens - tokens) if planned.counted else None
    return Prefix(tokens, session.home, session.idle_seconds, planned.counted, broken, new_tokens)


def found(metrics: Metrics, prefix: Prefix, delivery: Delivery) -> None:
    """Enter what came of it into the metrics."""
    usage = delivery.usage
    cached = usage.cached_tokens if usage is not None else None
    if cached is not None and delivery.replica == prefix.home:
        metrics.prefix.add(prefix.tokens, delivery.pool, "predicted")
        metrics.prefix.add(cached, delivery.pool, "measured")
    there = prefix.tokens if usage is None else prefix.of(usage.prompt_tokens)
    if (kind := break_of(prefix, delivery.replica, cached, there)) is not None:
        metrics.breaks.add(1, delivery.pool, kind)


def break_of(prefix: Prefix, replica: str, cached_tokens: int | None, tokens: int) -> Break | None:
    """How the prefix broke, if it did; the engine should have held so many `tokens` of it."""
    if prefix.broken is not None:
        return prefix.broken
    if replica != prefix.home:
        return "expected" if prefix.home is not None else None
    share = MISSING_SHARE if prefix.counted else GUESSED_SHARE
    if cached_tokens is None or tokens - cached_tokens <= max(MISSING_TOKENS, share * tokens):
        return None
    return "ttl" if prefix.idle_seconds >= RESTED_SECONDS else "unexpected"
