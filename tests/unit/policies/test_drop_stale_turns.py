"""A session that comes back after a pause, and turns that are old."""

import pytest
from pydantic import ValidationError

from policies.drop_stale_turns import DropStaleTurns
from policies.edit import DropMessages
from policies.memory import EMPTY, Memory
from policies.plan import Plan, plan
from policies.sizes import may_act
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.unit.policies.conversations import conversation, count, system, turn, user

STALE = DropStaleTurns(gap_seconds=600, keep_turns=2)
TALK = conversation(system(), *(part for number in range(6) for part in turn(number, 300)), user())


def dropped(done: object) -> list[tuple[str, int, int]]:
    assert isinstance(done, Plan)
    assert violations(TALK, done.edits) == ()
    return [(edit.policy, edit.start, edit.stop) for edit in done.edits if isinstance(edit, DropMessages)]


def test_after_a_pause_the_latest_turns_go_on() -> None:
    done = plan(TALK, [STALE], EMPTY, count, known_messages=25, idle_seconds=600)
    assert dropped(done) == [("drop_stale_turns", 2, 4), ("drop_stale_turns", 5, 21)]


def test_without_a_pause_nothing_happens() -> None:
    assert dropped(plan(TALK, [STALE], EMPTY, count, known_messages=25, idle_seconds=599)) == []


def test_the_window_stays_where_it_moved_to() -> None:
    first = plan(TALK, [STALE], EMPTY, count, known_messages=25, idle_seconds=600)
    assert isinstance(first, Plan)
    again = plan(TALK, [STALE], Memory.loads(first.memory.dumps()), count, known_messages=26)
    assert dropped(again) == dropped(first)


def test_what_waited_for_a_step_is_done_with_it() -> None:
    old = TrimToolOutput(max_tokens=100, age_turns=1)
    done = plan(TALK, [old, STALE], EMPTY, count, known_messages=25, idle_seconds=600)
    assert isinstance(done, Plan)
    assert [getattr(edit, "at", None) for edit in done.edits if edit.policy == "trim_tool_output"] == [23]


def test_few_turns_are_not_stale() -> None:
    short = conversation(system(), *turn(0, 300), user())
    done = plan(short, [STALE], EMPTY, count, idle_seconds=6000)
    assert isinstance(done, Plan) and done.edits == ()


def test_sizes_and_the_pause_tell() -> None:
    assert not may_act([STALE], 10**6, 10**5, 100)
    assert not may_act([STALE], 10**6, 10**5, 2, idle_seconds=700)
    assert may_act([STALE], 10**6, 10**5, 100, idle_seconds=700)


OLD = DropStaleTurns(gap_seconds=None, older_than_seconds=1000)
PARTS = [system(), *(part for number in range(14) for part in turn(number, 100))]


def said(minutes: int, memory: Memory, policy: DropStaleTurns = OLD) -> Plan:
    """A turn every 100 seconds; the plan for the next question."""
    stop = 2 + 4 * minutes
    talk, now = conversation(*PARTS[:stop]), 1e6 + 100 * minutes
    done = plan(talk, [policy], memory, count, known_messages=max(0, stop - 4), now_seconds=now)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    return done


def test_turns_that_are_too_old_go_and_with_them_those_half_as_old() -> None:
    memory, cuts = EMPTY, []
    for number in range(13):
        done = said(number, memory)
        memory = Memory.loads(done.memory.dumps())
        cuts.append(memory.enforced.cut.at if memory.enforced.cut else 0)
    assert cuts[:12] == [0] * 12, "the second turn ends when the third begins, and it is 1000 seconds old only then"
    assert cuts[12] == 29, "what is younger than 500 seconds stays"
    assert done.reasons == ("age",) * len(done.edits)


def test_a_session_that_nobody_remembers_is_new() -> None:
    assert said(13, EMPTY).edits == ()


def test_without_the_time_nothing_is_old() -> None:
    done = plan(conversation(*PARTS[:46]), [OLD], EMPTY, count)
    assert isinstance(done, Plan)
    assert done.edits == () and done.memory is EMPTY


@pytest.mark.parametrize(
    "fields",
    [
        {"gap_seconds": None},
        {"newer_than_seconds": 60},
        {"older_than_seconds": 60, "newer_than_seconds": 60},
    ],
)
def test_settings_that_say_nothing_or_contradict_each_other_are_mistakes(fields: dict[str, float | None]) -> None:
    with pytest.raises(ValidationError):
        DropStaleTurns.model_validate(fields)
