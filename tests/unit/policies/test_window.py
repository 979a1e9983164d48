"""Where a window may begin, and what falls out before it."""

from policies.conversation import Conversation
from policies.window import borders, cuts, dropped, is_kept_by_reasoning, opening, pinned
from tests.unit.policies.conversations import calling, conversation, result, says, system, turn, user


def windows(talk: Conversation) -> tuple[int, ...]:
    return cuts(talk, borders(talk, pinned(talk)))


def test_instructions_the_task_and_its_answer_are_pinned() -> None:
    talk = conversation(system(), *turn(1, 5), *turn(2, 5), system("reminder"), *turn(3, 5))
    assert pinned(talk) == {0, 1, 4, 9}
    assert dropped(10, pinned(talk)) == (range(2, 4), range(5, 9))


def test_a_greeting_before_the_task_is_pinned() -> None:
    assert pinned(conversation(says("Hello!"), user(), says(), user())) == {0, 1, 2}


def test_a_first_turn_without_an_answer_is_pinned_whole() -> None:
    assert pinned(conversation(user(), calling("a"), result("a"), user(), says())) == {0, 1, 2}


def test_reasoning_of_the_first_turn_is_not_torn_apart() -> None:
    talk = conversation(user(), calling("a", reasoning=True), result("a"), says(reasoning=True), user())
    assert pinned(talk) == {0, 1, 2, 3}


def test_windows_begin_at_turns() -> None:
    assert windows(conversation(system(), user(), says(), *turn(2, 5), *turn(3, 5))) == (3, 7)
    assert windows(conversation(system(), user())) == ()
    assert windows(conversation()) == ()


def test_windows_begin_at_the_steps_of_an_agent_with_one_task() -> None:
    talk = conversation(user(), *(part for call in "abc" for part in (calling(call), result(call))))
    assert windows(talk) == (3, 5)
    assert pinned(talk) == {0, 5, 6}
    assert dropped(5, pinned(talk)) == (range(1, 5),)


def test_the_beginning_of_an_answer_ends_no_turn() -> None:
    steps = [part for call in "abc" for part in (calling(call), result(call))]
    talk = conversation(user(), *steps, says("The result is"))
    assert windows(talk) == (3, 5)
    assert pinned(talk) == {0, 5, 6, 7}
    later = conversation(user(), says(), user(), *steps, says("The result is"))
    assert windows(later) == (2, 5, 7)
    assert borders(conversation(user(), says(), user(), says("It")), frozenset()) == (2,)


def test_results_of_no_call_behind_its_answer_keep_no_turn_open() -> None:
    assert pinned(conversation(user(), says(), result("nobody"), user(), says(), user())) == {0, 1}


def test_its_steps_stay_dropped_when_the_task_is_done_or_the_user_breaks_in() -> None:
    steps = [part for call in "abc" for part in (calling(call), result(call))]
    for more in ([says()], [says(), user()], [user()], [calling("d"), result("d")]):
        talk = conversation(user(), *steps, *more)
        assert 5 in borders(talk, pinned(talk))
        assert dropped(5, pinned(talk)) == (range(1, 5),)


def test_the_steps_of_a_later_turn_leave_what_it_was_asked() -> None:
    steps = [part for call in "abc" for part in (calling(call), result(call))]
    talk = conversation(user(), says(), user(), user(), *steps)
    assert windows(talk) == (2, 6, 8)
    assert opening(talk, 8) == {2, 3}
    assert opening(talk, 2) == opening(talk, 0) == frozenset()


def test_what_a_first_turn_keeps_does_not_hang_on_thoughts_that_may_go() -> None:
    steps = (calling("a"), result("a"), calling("b", reasoning=True), result("b"), calling("c"), result("c"))
    talk = conversation(user(), *steps, user(), says())
    assert pinned(talk) == {0, 3, 4, 5, 6}
    assert is_kept_by_reasoning(talk, talk.turns()[0])
    closed = conversation(user(), *steps, says(), user(), says())
    assert not is_kept_by_reasoning(closed, closed.turns()[0])


def test_a_turn_that_is_over_goes_as_a_whole() -> None:
    talk = conversation(user(), says(), user(), calling("a"), result("a"), says(), user())
    assert windows(talk) == (2, 6)


def test_a_step_stays_whole_and_so_does_what_follows_a_thought() -> None:
    side_by_side = (calling("a", "b"), result("a"), calling("c"), result("b"), result("c"))
    assert windows(conversation(user(), *side_by_side, calling("d"), result("d"))) == (6,)
    steps = [part for call in "abcd" for part in (calling(call, reasoning=call > "b"), result(call))]
    talk = conversation(user(), *steps)
    assert windows(talk) == (3, 5)
    assert pinned(talk) == {0, 5, 6, 7, 8}


def test_no_window_begins_inside_a_group() -> None:
    talk = conversation(user(), says(), user(), calling("a"), user(), result("a"), says(), user())
    assert windows(talk) == (2, 7)


def test_a_pinned_call_keeps_its_late_answer() -> None:
    talk = conversation(user(), calling("a"), user(), result("a"), says(), user(), says())
    assert windows(talk) == (2,)


def test_what_is_not_answered_yet_is_kept() -> None:
    talk = conversation(user(), says(), user(media=1), result("orphan"), user())
    assert windows(talk) == (2,)
