"""Step 7, the pure part: which pools may take a call, in which order.

Rule: a session stays where its KV cache is warm while that costs less than computing the prompt anew elsewhere; else
the call's phase decides. Every pool of the model is a last resort before an error.
"""

from collections.abc import Sequence

from backends.demand import Phase
from backends.select import ReplicaState
from gateway.pools import ServedPool


def candidates(pools: Sequence[ServedPool], phase: Phase, home: str | None, saved_seconds: float) -> list[ServedPool]:
    """The pools in order of preference. `saved_seconds`: prefill that the session's home would not have to do."""
    by_phase = sorted(pools, key=lambda pool: preference(pool, phase))
    at_home = [pool for pool in pools if home is not None and stays(pool.pool.states(), home, saved_seconds)]
    return [*at_home, *(pool for pool in by_phase if pool not in at_home)]


def preference(pool: ServedPool, phase: Phase) -> int:
    """A pool for this very phase first, then one for any, then the other kind."""
    if pool.pool.phase == phase:
        return 0
    return 1 if pool.pool.phase is None else 2


def stays(states: Sequence[ReplicaState], home: str, saved_seconds: float) -> bool:
    """Whether a session should stay on its home: it has room and is not further behind than what it saves."""
    free = [state for state in states if state.eligible and not state.full]
    at_home = next((state for state in free if state.name == home), None)
    if at_home is None:
        return False
    return at_home.work_seconds <= min(state.work_seconds for state in free) + saved_seconds
