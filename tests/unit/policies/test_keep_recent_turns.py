"""The window that moves in steps."""

import pytest
from pydantic import ValidationError

from policies.draft import Draft
from policies.frame import Frame
from policies.keep_recent_turns import KeepRecentTurns
from tests.unit.policies.conversations import calling, conversation, message, result, says, system, turn, user


def talk(turns: int, *, overhead_tokens: int = 0, result_tokens: int = 100) -> Draft:
    """Instructions and so many turns of about `result_tokens` + 40 tokens: turn n begins at message 4n + 1."""
    parts = [part for number in range(turns) for part in turn(number, result_tokens)]
    return Draft(Frame(conversation(system(), *parts, overhead_tokens=overhead_tokens)))


def test_by_turns_after_the_first_nothing_happens_up_to_the_high_water_and_then_the_low_water_is_left() -> None:
    policy = KeepRecentTurns(turns=3, high_water_turns=6)
    assert policy.revise(talk(7), None).cut == 0
    assert policy.revise(talk(8), None).cut == 1 + 4 * 5


def test_the_high_water_is_twice_the_low_one_unless_said() -> None:
    assert KeepRecentTurns(turns=3).revise(talk(7), None).cut == 0
    assert KeepRecentTurns(turns=3).revise(talk(8), None).cut == 21


def test_the_next_step_counts_from_the_last_cut() -> None:
    policy = KeepRecentTurns(turns=3, high_water_turns=6)
    assert policy.revise(talk(10).with_cut(17), None).cut == 17
    assert policy.revise(talk(11).with_cut(17), None).cut == 1 + 4 * 8


def test_by_tokens_turns_go_from_the_high_down_to_the_low_water() -> None:
    policy = KeepRecentTurns(high_water_tokens=1000, low_water_tokens=500)
    assert policy.revise(talk(6), None).total_tokens <= 1000
    assert policy.revise(talk(6), None).cut == 0
    draft = policy.revise(talk(8), None)
    assert 350 < draft.total_tokens <= 500


def test_tokens_go_before_turns() -> None:
    policy = KeepRecentTurns(turns=6, high_water_tokens=1000, low_water_tokens=500)
    assert len([at for at in range(33) if talk(8).messages[at].role == "user"]) == 8
    assert policy.revise(talk(8), None).total_tokens <= 500


def test_the_overhead_counts() -> None:
    policy = KeepRecentTurns(high_water_tokens=1000, low_water_tokens=500)
    assert policy.revise(talk(6), None).cut == 0
    assert policy.revise(talk(6, overhead_tokens=600), None).total_tokens < 800


def test_without_room_for_a_step_the_window_stays_until_a_step_can_be_freed() -> None:
    policy = KeepRecentTurns(high_water_tokens=1000, low_water_tokens=500)
    assert policy.revise(talk(4, overhead_tokens=700), None).cut == 0
    assert policy.revise(talk(7, overhead_tokens=700), None).cut > 0


def test_an_overhead_above_the_mark_and_an_empty_chat_are_left_alone() -> None:
    draft = Draft(Frame(conversation(system(), user(), overhead_tokens=2000)))
    assert KeepRecentTurns(high_water_tokens=1000, low_water_tokens=500).revise(draft, 1500) is draft


def test_what_would_be_refused_is_cut_even_by_less_than_a_step() -> None:
    policy = KeepRecentTurns(high_water_tokens=1000, low_water_tokens=500)
    assert policy.revise(talk(4, overhead_tokens=700), 1200).total_tokens <= 1200


def test_without_marks_only_what_would_be_refused_is_cut() -> None:
    assert KeepRecentTurns().revise(talk(50), None).cut == 0
    assert KeepRecentTurns().revise(talk(50), 1000).total_tokens <= 750


def test_the_last_turn_stays() -> None:
    draft = talk(2, result_tokens=5000)
    revised = KeepRecentTurns(high_water_tokens=1000, low_water_tokens=500).revise(draft, None)
    assert all(revised.keeps(at) for at in range(5, 9))


def test_giant_last_message_drops_all_that_may_go() -> None:
    draft = Draft(Frame(conversation(system(), *turn(1, 100), *turn(2, 900), user("x" * 40_000))))
    revised = KeepRecentTurns(high_water_tokens=1000, low_water_tokens=500).revise(draft, None)
    assert [at for at in range(10) if revised.keeps(at)] == [0, 1, 4, 9]


def test_what_the_turn_under_way_was_asked_is_not_taken_to_be_freed() -> None:
    policy = KeepRecentTurns(high_water_tokens=1000, low_water_tokens=500)
    steps = [part for number in range(10) for part in (calling(f"c{number}"), result(f"c{number}", "x" * 400))]
    for more in ([], [says("So")]):
        draft = policy.revise(Draft(Frame(conversation(user(), says(), user("y" * 1200), *steps, *more))), None)
        assert 300 < draft.total_tokens <= 500
        assert draft.keeps(2)


def test_a_conversation_of_one_turn_has_nothing_to_drop() -> None:
    draft = Draft(Frame(conversation(message("user", "x" * 40_000))))
    assert KeepRecentTurns(high_water_tokens=1000).revise(draft, 2000) is draft


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"high_water_turns": 3}, "needs turns"),
        ({"turns": 4, "high_water_turns": 3}, "must not be above"),
        ({"low_water_tokens": 3}, "needs high_water_tokens"),
        ({"high_water_tokens": 3, "low_water_tokens": 3}, "must be below"),
        ({"turns": 0}, "greater than 0"),
        ({"turn": 3}, "Extra inputs"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, int], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        KeepRecentTurns.model_validate(settings)
