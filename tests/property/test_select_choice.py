"""For any pool: the chosen replica may take the call, and none is much idler."""

from hypothesis import given
from hypothesis import strategies as st

from backends.demand import Demand
from backends.select import ReplicaState, select

WORK = st.floats(0, 1000)
NAMES = "abcdef"


@st.composite
def pools(draw: st.DrawFn) -> list[ReplicaState]:
    return [
        ReplicaState(
            name,
            in_flight=draw(st.integers(0, 4)),
            max_concurrent=draw(st.none() | st.integers(1, 4)),
            prefill_seconds=draw(WORK),
            decode_seconds=draw(WORK),
            draining=draw(st.booleans()),
            healthy=draw(st.booleans()),
            ejected=draw(st.booleans()),
        )
        for name in NAMES[: draw(st.integers(0, 6))]
    ]


@given(
    pools(),
    st.sampled_from(["", *NAMES]),
    st.floats(0, 100),
    st.integers(0, 10**9),
    st.frozensets(st.sampled_from(NAMES)),
)
def test_choice(states: list[ReplicaState], home: str, slack: float, tie: int, exclude: frozenset[str]) -> None:
    demand = Demand(1.0, 1.0, 1, 1, None, home, "m", 1.0)
    name = select(states, demand, affinity_slack_seconds=slack, tie=tie, exclude=exclude)
    free = {s.name: s for s in states if s.eligible and not s.full and s.name not in exclude}
    if name is None:
        assert not free
        return
    least = min(state.work_seconds for state in free.values())
    assert free[name].work_seconds <= least + (slack if name == home else 1e-6)
    if home in free and free[home].work_seconds <= least + slack:
        assert name == home


@given(pools(), st.integers(0, 100))
def test_the_order_of_calls_decides_among_equals_only(states: list[ReplicaState], tie: int) -> None:
    same = [state._replace(prefill_seconds=1.0, decode_seconds=0.0, in_flight=0) for state in states]
    demand = Demand(1.0, 1.0, 1, 1, None, None, "m", 1.0)
    able = [state.name for state in same if state.eligible]
    picks = [
        select(same, demand, affinity_slack_seconds=0, tie=tie + turn, exclude=frozenset()) for turn in range(len(able))
    ]
    assert sorted(pick or "" for pick in picks) == able
