"""Step 7, the pure part: which pools may take a call, in which order.

Rule: a session stays where its KV cache is warm while that costs less than computing the prompt anew elsewhere; else
the call's phase decides. Every pool of the model is a last resort before an error.
"""

from collections.abc import Sequence

from backends.demand import Demand, Phase
from backends.select import ReplicaState
from gateway.pools import ServedPool

Candidate = tuple[ServedPool, Demand]


def candidates(
    pools: Sequence[ServedPool],
    wanted: Sequence[Demand],
    phase: Phase,
    home: str | None,
    cold_seconds: float,
    first: str | None = None,
) -> list[Candidate]:
    """The pools in order of preference, each with the call's demand there.

    `cold_seconds`: the prefill where nothing is cached; a session's home saves what it needs less than that. `first`
    is a pool that goes before all others, whatever the phase and wherever the home.
    """
    found = list(zip(pools, wanted, strict=True))
    if len(found) == 1:
        return found
    if first is not None:
        return sorted(found, key=lambda candidate: (candidate[0].name != first, preference(candidate[0], phase)))
    found.sort(key=lambda candidate: preference(candidate[0], phase))
    if home is None:
        return found
    return sorted(found, key=lambda candidate: not stays_in(candidate, home, cold_seconds))


def preference(pool: ServedPool, phase: Phase) -> int:
    """A pool for this very phase first, then one for any, then the other kind."""
    if pool.pool.phase == phase:
        return 0
    return 1 if pool.pool.phase is None else 2


def stays_in(candidate: Candidate, home: str, cold_seconds: float) -> bool:
    """Whether the session's home is in this pool and worth waiting for."""
    pool, wanted = candidate
    return pool.has(home) and stays(pool.pool.states(), home, cold_seconds - wanted.prefill_seconds)


def stays(states: Sequence[ReplicaState], home: str, saved_seconds: float) -> bool:
    """Whether a session should stay on its home: it has room and is not further behind than what it saves."""
    free = [state for state in states if state.eligible and not state.full]
    at_home = next((state for state in free if state.name == home), None)
    if at_home is None:
        return False
    return at_home.work_seconds <= min(state.work_seconds for state in free) + saved_seconds
