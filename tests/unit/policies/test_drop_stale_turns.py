"""A session that comes back after a pause."""

from policies.drop_stale_turns import DropStaleTurns
from policies.edit import DropMessages
from policies.memory import EMPTY, Memory
from policies.plan import Plan, may_act, plan
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
