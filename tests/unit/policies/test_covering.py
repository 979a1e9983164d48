"""What a summary may stand for, and what stays so that any chat template takes the rest."""

from random import Random

from policies.conversation import Conversation
from policies.covering import Cover, cover_at, covers
from policies.record import BEGIN
from tests.property.test_policies_seeded import talk
from tests.unit.policies.conversations import calling, conversation, message, result, says, system, turn, user


def of(talk: Conversation, untouched: frozenset[int] = frozenset()) -> tuple[Cover, ...]:
    return covers(talk, untouched, BEGIN)


def test_at_the_start_of_a_turn_the_answer_before_is_the_bridge() -> None:
    talk = conversation(system(), *turn(0, 9), *turn(1, 9), *turn(2, 9))
    ends = [cover for cover in of(talk) if cover.bridge is not None]
    assert ends == [Cover(1, 5, 4), Cover(1, 9, 8)]


def test_an_agent_in_its_only_turn_is_covered_group_by_group() -> None:
    talk = conversation(user("task"), calling("a"), result("a"), calling("b", "c"), result("b"), result("c"))
    assert of(talk) == (Cover(0, 3),)
    assert of(conversation(*talk.messages, says("x"))) == (Cover(0, 3),), "an answer begun is none"
    assert of(conversation(*talk.messages, says("x"), user())) == (Cover(0, 3), Cover(0, 6), Cover(0, 7, 6))


def test_nothing_that_is_not_answered_is_covered() -> None:
    assert of(conversation(user("task"), says(), user("and?"))) == ()
    assert of(conversation(user("task"), calling("a"), result("a"))) == ()


def test_reasoning_of_the_turn_under_way_stays_and_that_of_others_goes_whole() -> None:
    working = (
        user("task"),
        calling("a"),
        result("a"),
        calling("b", thinking="hm"),
        result("b"),
        calling("c"),
        result("c"),
    )
    assert of(conversation(*working)) == (Cover(0, 3),)
    over = conversation(*working, says("x", thinking="so"), user("next"), says())
    assert of(over)[:3] == (Cover(0, 3), Cover(0, 5, cleared=(7,)), Cover(0, 7, cleared=(7,)))
    assert of(over)[3] == Cover(0, 8, 7, cleared=(7,))


def test_a_group_is_never_parted_not_even_by_an_answer_that_comes_late() -> None:
    talk = conversation(user("task"), calling("a"), says("wait"), user("now?"), result("a"), says("done"), user("more"))
    assert of(talk) == (Cover(0, 5), Cover(0, 6, 5)) or of(talk) == (Cover(0, 6, 5),)
    early = conversation(
        calling("a"), user("task"), says("wait"), says("still"), user("x"), result("a"), says("y"), user("z")
    )
    assert all(cover.stop <= 5 for cover in of(early))


def test_a_turn_without_a_closing_answer_is_no_bridge() -> None:
    talk = conversation(user("task"), calling("a"), result("a"), user("stop"), says("ok"), user("go"), says())
    assert [cover.stop for cover in of(talk)] == [5]


def test_what_is_pinned_is_never_covered() -> None:
    talk = conversation(*turn(0, 9), *turn(1, 9), *turn(2, 9))
    assert [cover.stop for cover in of(talk, frozenset({6})) if cover.bridge is not None] == [4]
    assert of(talk, frozenset({0})) == ()


def test_a_task_that_holds_a_summary_gets_no_second_one() -> None:
    talk = conversation(message("user", f"task {BEGIN}9 messages]"), *turn(1, 9)[1:], *turn(2, 9))
    assert of(talk) == ()


def test_one_cover_is_found_as_among_all() -> None:
    """Over conversations of every odd kind, some of their messages pinned."""
    for seed in range(300):
        r = Random(seed)
        odd = talk(r, r.choice((1, 2, 4, 6)))
        pinned = frozenset(r.sample(range(len(odd.messages)), r.choice((0, 0, 1)) if odd.messages else 0))
        all_of_them = {cover.stop: cover for cover in of(odd, pinned)}
        for stop in range(len(odd.messages) + 1):
            assert cover_at(odd, pinned, BEGIN, stop) == all_of_them.get(stop), (seed, stop)
