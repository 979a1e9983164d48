"""The window by tokens, under a name of its own."""

import pytest
from pydantic import ValidationError

from policies.edit import DropMessages
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, Memory
from policies.plan import Plan, plan
from policies.sizes import may_act
from tests.unit.policies.conversations import conversation, count, system, turn, user

TALK = conversation(system(), *(part for number in range(20) for part in turn(number, 100)), user())
MARKS = {"high_water_tokens": 1500, "low_water_tokens": 700}


def planned(window: KeepRecentTokens | KeepRecentTurns, memory: Memory = EMPTY) -> Plan:
    done = plan(TALK, [window], memory, count)
    assert isinstance(done, Plan)
    return done


def test_it_cuts_where_the_window_by_turns_would_with_the_same_marks() -> None:
    done, same = planned(KeepRecentTokens(**MARKS)), planned(KeepRecentTurns(**MARKS))
    assert done.sent_tokens == same.sent_tokens <= 700
    assert [edit.removed_tokens for edit in done.edits] == [edit.removed_tokens for edit in same.edits]


def test_its_edits_bear_its_name_also_when_they_are_made_again() -> None:
    done = planned(KeepRecentTokens(**MARKS))
    again = planned(KeepRecentTokens(**MARKS), Memory.loads(done.memory.dumps()))
    assert done.edits == again.edits
    assert {edit.policy for edit in done.edits if isinstance(edit, DropMessages)} == {"keep_recent_tokens"}


def test_a_low_mark_above_the_high_one_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="must be below it"):
        KeepRecentTokens(high_water_tokens=100, low_water_tokens=100)


def test_below_its_mark_nothing_is_looked_at() -> None:
    assert not may_act([KeepRecentTokens(high_water_tokens=10_000)], 5_000, 5_000, 40)
    assert may_act([KeepRecentTokens(high_water_tokens=10_000)], 10_001, 5_000, 40)
