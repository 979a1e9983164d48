"""Turns, groups and totals of a conversation."""

from tests.unit.policies.conversations import calling, conversation, result, says, system, user


def test_a_turn_is_a_user_message_with_all_that_answers_it() -> None:
    talk = conversation(system(), user(), calling("a"), result("a"), says(), user(), says())
    assert talk.turns() == (range(1, 5), range(5, 7))


def test_tool_results_are_not_turns() -> None:
    calls = [f"c{at}" for at in range(7)]
    talk = conversation(user(), calling(*calls), *(result(call) for call in calls))
    assert talk.turns() == (range(9),)


def test_user_messages_in_a_row_open_one_turn_even_past_a_reminder() -> None:
    talk = conversation(user(), system("reminder"), user(), says(), user())
    assert talk.turns() == (range(4), range(4, 5))


def test_what_precedes_the_first_user_message_is_in_no_turn() -> None:
    assert conversation(system(), says("Hello!"), user()).turns() == (range(2, 3),)
    assert conversation(system(), says("Hello!")).turns() == ()
    assert conversation().turns() == ()


def test_ids_are_compared_trimmed() -> None:
    assert conversation(calling(" c1 ", "c2"), result("c1"), result(" c2")).groups() == ((0, 1, 2),)


def test_parallel_calls_are_one_group() -> None:
    talk = conversation(user(), calling("a", "b"), result("b"), result("a"), says())
    assert talk.groups() == ((1, 2, 3),)


def test_answers_find_their_call_across_another_message_and_the_latest_of_one_id() -> None:
    talk = conversation(calling("old"), calling("new"), result("old"), result("new"), calling("new"), result("new"))
    assert talk.groups() == ((0, 2), (1, 3), (4, 5))


def test_an_orphan_is_in_no_group() -> None:
    assert conversation(result("gone"), user(), calling("a")).groups() == ((2,),)


def test_the_total_counts_the_overhead() -> None:
    assert conversation(user("four" * 3), overhead_tokens=100).total_tokens == 107
