"""Messages that no other policy touches."""

import pytest
from pydantic import ValidationError

from policies.edit import DropMessages
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY
from policies.pin import Pin
from policies.plan import Plan, plan
from policies.policy import Policy
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.unit.policies.conversations import calling, conversation, count, result, says, system, turn, user

TALK = conversation(system(), *(part for number in range(6) for part in turn(number, 300)))


@pytest.mark.parametrize(
    ("pin", "pinned"),
    [
        (Pin(first_turns=1), {1, 2, 3, 4}),
        (Pin(roles=("system",)), {0}),
        (Pin(tools=("loo*",)), {at for at in range(25) if at % 4 in (2, 3)}),
        (Pin(tools=("read",)), set()),
        (Pin(markers=("Step 3?",)), {13}),
        (Pin(first_turns=9), set(range(1, 25))),
    ],
)
def test_what_is_pinned(pin: Pin, pinned: set[int]) -> None:
    assert pin.untouched(TALK) == pinned


def test_a_pinned_output_is_not_trimmed_and_its_turn_is_not_dropped() -> None:
    parts = list(TALK.messages)
    parts[11] = result("call_2", "keep this! " * 200)
    talk = conversation(*parts)
    policies: list[Policy] = [
        TrimToolOutput(max_tokens=100),
        KeepRecentTurns(turns=1, high_water_turns=2),
        Pin(markers=("keep this!",)),
    ]
    done = plan(talk, policies, EMPTY, count)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    gone = {at for edit in done.edits if isinstance(edit, DropMessages) for at in range(edit.start, edit.stop)}
    assert gone == {2, 3, *range(5, 9), *range(13, 21)}
    assert all(getattr(edit, "at", None) != 11 for edit in done.edits)


def test_pins_hold_while_edits_are_in_force_and_change_in_the_cold() -> None:
    window = KeepRecentTurns(turns=1, high_water_turns=2)
    first = plan(TALK, [window, Pin(markers=("Step 3?",))], EMPTY, count)
    assert isinstance(first, Plan)
    again = plan(TALK, [window], first.memory, count, known_messages=25)
    cold = plan(TALK, [window], first.memory, count, known_messages=25, cold=True)
    assert isinstance(again, Plan) and isinstance(cold, Plan)
    assert again.edits == first.edits != cold.edits


def test_pinned_turns_do_not_count_for_the_window() -> None:
    """Else a few pins would hold the count above the mark, and the window would move with every turn."""
    window, pin = KeepRecentTurns(turns=1, high_water_turns=3), Pin(markers=("Step 1?", "Step 2?", "Step 3?"))
    done = plan(TALK, [window, pin], EMPTY, count)
    assert isinstance(done, Plan) and done.edits == ()


def test_a_pin_must_pin_something() -> None:
    for settings in ({}, {"markers": ("",)}):
        with pytest.raises(ValidationError):
            Pin.model_validate(settings)


def test_a_pinned_half_answered_group_does_not_tear_the_window() -> None:
    talk = conversation(user(), says(), user(), calling("a", "b"), result("a"), user(), says(), user(), says(), user())
    done = plan(talk, [Pin(tools=("look",)), KeepRecentTurns(turns=1, high_water_turns=1)], EMPTY, count)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    assert [(edit.start, edit.stop) for edit in done.edits if isinstance(edit, DropMessages)] == [(5, 9)]
