"""Conversations that engines choke on, put right."""

import json

from policies.arguments import KEY
from policies.conversation import Conversation
from policies.edit import DropMessages, apply
from policies.memory import EMPTY
from policies.plan import Plan, plan
from policies.repair import ANSWER, Repair
from policies.validate import violations
from tests.unit.policies.conversations import Counter, calling, conversation, message, result, says, system, user


def repaired(talk: Conversation) -> Conversation:
    """What is sent; nothing is counted, and a second repair finds nothing."""
    counter = Counter()
    done = plan(talk, [Repair()], EMPTY, counter)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    assert counter.calls == 0
    after = apply(talk, done.edits)
    again = plan(after, [Repair()], done.memory, counter)
    assert isinstance(again, Plan) and again.edits == ()
    return after


def roles(talk: Conversation) -> list[str]:
    return [message.role for message in talk.messages]


def test_what_is_right_stays_as_it_is() -> None:
    talk = conversation(system(), user(), calling("a", "b"), result("b"), result("a"), says(), user())
    assert repaired(talk) is talk


def test_a_call_that_nobody_answered_is_answered_with_an_error_behind_the_answers_there_are() -> None:
    after = repaired(conversation(user(), calling("a", "b", "c"), result("b"), user()))
    assert roles(after) == ["user", "assistant", "tool", "tool", "tool", "user"]
    assert [kept.answers for kept in after.messages[2:5]] == ["b", "a", "c"]
    assert json.loads(ANSWER) and after.messages[3].text == ANSWER


def test_calls_at_the_end_wait_for_their_answers_unless_some_have_come() -> None:
    talk = conversation(user(), calling("a"))
    assert repaired(talk) is talk
    assert roles(repaired(conversation(user(), calling("a", "b"), result("a"))))[-2:] == ["tool", "tool"]


def test_an_answer_that_comes_late_is_an_answer() -> None:
    talk = conversation(user(), calling("a"), user(), result(" a "))
    assert repaired(talk) is talk


def test_answers_to_no_call_go() -> None:
    talk = conversation(user(), says(), result("x"), result("y", name=None), user(), says(), user())
    assert roles(repaired(talk)) == ["user", "assistant", "user", "assistant", "user"]
    first = conversation(system(), result("x"), user(), says(), user())
    assert roles(repaired(first)) == ["system", "user", "assistant", "user"]


def test_answers_to_no_call_stay_where_two_of_a_kind_would_meet_or_nobody_has_read_them() -> None:
    for talk in (
        conversation(user(), result("x"), user(), says()),
        conversation(user(), says(), result("x"), says(), user()),
        conversation(user(), says(), result("x"), user()),
        conversation(user(), says(), result("x")),
    ):
        assert repaired(talk) is talk


def test_broken_arguments_become_an_object_that_holds_them() -> None:
    after = repaired(conversation(user(), calling("a", "b", arguments='{"value": '), result("a"), result("b")))
    assert [json.loads(call.arguments) for call in after.messages[1].calls] == [{KEY: '{"value": '}] * 2


def test_lone_surrogates_are_replaced_wherever_they_are() -> None:
    talk = conversation(
        user("a \ud83d"), calling("c", arguments='{"p": "\ud83d"}'), result("c", "\udc00"), says("\ud83d")
    )
    after = repaired(talk)
    assert [kept.text for kept in after.messages] == ["a \ufffd", "", "\ufffd", "\ufffd"]
    assert after.messages[1].calls[0].arguments == '{"p": "\ufffd"}'
    assert after.total_tokens == talk.total_tokens


def test_media_stay_in_their_place() -> None:
    talk = conversation(user("\ud83d", media=1), says())
    assert repaired(talk) is talk


def test_what_a_repair_adds_is_counted() -> None:
    talk = conversation(user(), calling("a", arguments="nonsense"), user())
    assert repaired(talk).total_tokens > talk.total_tokens + 40


def test_many_answers_to_no_call_are_one_gap() -> None:
    talk = conversation(user(), says(), *(result(f"x{number}") for number in range(50)), user(), says(), user())
    done = plan(talk, [Repair()], EMPTY, Counter())
    assert isinstance(done, Plan)
    assert [type(edit) for edit in done.edits] == [DropMessages]


def test_a_reminder_between_is_not_in_the_way() -> None:
    talk = conversation(user(), says(), result("x"), system("Mind."), user(), says(), message("tool", "late"), user())
    assert roles(repaired(talk)) == ["user", "assistant", "system", "user", "assistant", "tool", "user"]
