"""Choice of a replica: least work, affinity with slack, fair ties, and who is passed over."""

import pytest

from backends.select import ReplicaState, select
from tests.unit.backends.demands import demand

IDLE = [ReplicaState("a"), ReplicaState("b"), ReplicaState("c")]


def chosen(states: list[ReplicaState], home: str | None = None, tie: int = 0, slack: float = 1.0) -> str | None:
    return select(states, demand(home=home), affinity_slack_seconds=slack, tie=tie)


def test_least_outstanding_work_wins_whatever_the_number_of_calls() -> None:
    states = [ReplicaState("a", in_flight=1, decode_seconds=9.0), ReplicaState("b", in_flight=5, prefill_seconds=1.0)]
    assert chosen(states) == "b"


def test_equals_take_turns() -> None:
    assert [chosen(IDLE, tie=tie) for tie in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_equal_work_goes_to_the_fewer_calls() -> None:
    states = [ReplicaState("a", in_flight=3), ReplicaState("b", in_flight=1), ReplicaState("c", in_flight=1)]
    assert [chosen(states, tie=tie) for tie in range(2)] == ["b", "c"]


def test_what_rounding_leaves_over_is_a_tie() -> None:
    states = [ReplicaState("a", decode_seconds=0.1 + 0.2), ReplicaState("b", decode_seconds=0.3)]
    assert {chosen(states, tie=tie) for tie in range(2)} == {"a", "b"}


def test_home_wins_within_the_slack_and_loses_beyond() -> None:
    states = [ReplicaState("a"), ReplicaState("b", decode_seconds=1.0)]
    assert chosen(states, home="b", slack=1.0) == "b"
    assert chosen(states, home="b", slack=0.9) == "a"


def test_a_home_that_is_gone_is_no_home() -> None:
    assert chosen(IDLE, home="z") == "a"


@pytest.mark.parametrize(
    "barred",
    [
        ReplicaState("a", draining=True),
        ReplicaState("a", healthy=False),
        ReplicaState("a", ejected=True),
        ReplicaState("a", max_concurrent=0),
    ],
)
def test_who_may_not_take_calls_is_passed_over_even_as_home(barred: ReplicaState) -> None:
    assert chosen([barred, ReplicaState("b", decode_seconds=50.0)], home="a", slack=100.0) == "b"
    assert chosen([barred]) is None


def test_excluded_replicas_are_passed_over() -> None:
    assert select(IDLE[:2], demand(), affinity_slack_seconds=1.0, tie=0, exclude=frozenset({"a"})) == "b"
    assert select(IDLE[:1], demand(), affinity_slack_seconds=1.0, tie=0, exclude=frozenset({"a"})) is None
