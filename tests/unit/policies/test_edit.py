"""Edits applied to a conversation."""

from msgspec.structs import replace

from policies.edit import ClearReasoning, DropMessages, InsertAnswer, ReplaceArguments, ReplaceText, apply
from tests.unit.policies.conversations import calling, conversation, message, result, says, user

TALK = conversation(user("task"), says("one"), user("two"), result("c", "long" * 9), overhead_tokens=7)


def test_no_edit_gives_the_very_same_object() -> None:
    assert apply(TALK, ()) is TALK


def test_indices_are_those_of_the_original() -> None:
    edits = (
        DropMessages("p", 1, 2, TALK.messages[2].digest, 5),
        ReplaceText("p", 3, TALK.messages[3].digest, "short", 6),
    )
    after = apply(TALK, edits)
    assert [kept.text for kept in after.messages] == ["task", "two", "short"]
    assert after.total_tokens == TALK.total_tokens - 5 - 6
    assert after.messages[0] is TALK.messages[0]


def test_a_replaced_message_keeps_all_but_text_tokens_and_digest() -> None:
    talk = conversation(message("tool", "x" * 400, answers="c", name="ls", cache_control=1))
    edited = apply(talk, (ReplaceText("p", 0, talk.messages[0].digest, "y", 90),)).messages[0]
    assert (edited.answers, edited.name, edited.cache_control, edited.tokens) == ("c", "ls", 1, 14)
    assert len(edited.digest) == 16 and edited.digest != talk.messages[0].digest


def test_an_answer_is_inserted_behind_its_message_and_reasoning_and_arguments_change_in_place() -> None:
    asked = replace(calling("a", "b", reasoning=True), reasoning_text="hm " * 10, tokens=60)
    talk = conversation(user(), asked, result("a"), user())
    digest = talk.messages[1].digest
    after = apply(
        talk,
        (
            ClearReasoning("p", 1, digest, 20),
            ReplaceArguments("p", 1, 1, digest, '{"x": 1}', -3),
            InsertAnswer("p", 2, talk.messages[2].digest, "b", "none", -7),
        ),
    )
    assert [kept.role for kept in after.messages] == ["user", "assistant", "tool", "tool", "user"]
    edited, inserted = after.messages[1], after.messages[3]
    assert [call.arguments for call in edited.calls] == ["{}", '{"x": 1}']
    assert (edited.reasoning, edited.reasoning_tokens, edited.tokens) == (False, 0, 43)
    assert (inserted.answers, inserted.text, inserted.tokens) == ("b", "none", 7)
    assert after.total_tokens == talk.total_tokens - 20 + 3 + 7


def test_reasoning_is_a_share_of_the_message() -> None:
    thinking = replace(says("y" * 99), reasoning_text="x" * 300, tokens=104)
    assert thinking.reasoning_tokens == 78
    assert says("y" * 99).reasoning_tokens == 0
