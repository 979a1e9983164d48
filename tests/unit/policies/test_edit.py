"""Edits applied to a conversation."""

from policies.edit import DropMessages, ReplaceText, apply
from tests.unit.policies.conversations import conversation, message, result, says, user

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
