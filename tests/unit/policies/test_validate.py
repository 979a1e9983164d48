"""The validator: each rule is broken once on purpose, and what was wrong before is forgiven."""

import pytest
from msgspec.structs import replace

from policies.conversation import Conversation, ToolCall
from policies.edit import (
    AddNote,
    AddSummary,
    ClearReasoning,
    DropMessages,
    Edit,
    InsertAnswer,
    ReplaceArguments,
    ReplaceText,
)
from policies.left_out import told
from policies.record import BEGIN, END, framed
from policies.validate import RULES, violations
from tests.unit.policies.conversations import calling, conversation, message, result, says, system, user


def drop(talk: Conversation, start: int, stop: int) -> DropMessages:
    tokens = sum(message.tokens for message in talk.messages[start:stop])
    digest = talk.messages[stop].digest if stop < len(talk.messages) else b""
    return DropMessages("p", start, stop, digest, tokens)


def rewrite(talk: Conversation, at: int, text: str = "short") -> ReplaceText:
    return ReplaceText("p", at, talk.messages[at].digest, text, 1)


def clear(talk: Conversation, at: int) -> ClearReasoning:
    return ClearReasoning("p", at, talk.messages[at].digest, 1)


def answer(talk: Conversation, at: int, call_id: str, text: str = "none") -> InsertAnswer:
    return InsertAnswer("p", at, talk.messages[at].digest, call_id, text, -5)


def summary(talk: Conversation, at: int, text: str = "x", tokens: int = 5) -> AddSummary:
    return AddSummary("p", at, talk.messages[at].digest, framed(text, 3), -tokens)


def note(talk: Conversation, at: int, *gone: int, tokens: int = 5, text: str = "") -> AddNote:
    return AddNote("p", at, talk.messages[at].digest, text or told(len(gone), "kvt_x"), -tokens, "kvt_x", gone)


def rearrange(talk: Conversation, at: int, arguments: str, call: int = 0) -> ReplaceArguments:
    return ReplaceArguments("p", at, call, talk.messages[at].digest, arguments, 0)


def broken(talk: Conversation, *edits: Edit) -> set[str]:
    return {violation.rule for violation in violations(talk, edits)}


TALK = conversation(
    system(),
    user("task"),
    calling("a", "b"),
    result("a"),
    result("b"),
    says(),
    user("second"),
    calling("c", reasoning=True),
    result("c", '{"rows": [1, 2, 3]}'),
    says(reasoning=True),
    user("last"),
    calling("d", reasoning=True),
    message("tool", "ok", answers="d", media=1),
)

SUMMARY = "one summary, framed, behind the task, shorter than what it replaces"
NOTE = "a handle of messages left out names those that are, behind the task"
BREAKS: list[tuple[str, tuple[Edit, ...]]] = [
    ("system and developer messages stay", (drop(TALK, 0, 1),)),
    ("system and developer messages stay", (rewrite(TALK, 0),)),
    ("the first user message stays", (drop(TALK, 1, 6),)),
    ("the first user message stays", (rewrite(TALK, 1),)),
    ("the last user message stays verbatim", (rewrite(TALK, 10),)),
    ("a call and its answers stay or go as one", (drop(TALK, 3, 4),)),
    ("a call and its answers stay or go as one", (drop(TALK, 2, 3),)),
    ("reasoning goes by whole turns, never in the turn under way", (drop(TALK, 7, 9),)),
    ("reasoning goes by whole turns, never in the turn under way", (drop(TALK, 11, 12),)),
    ("reasoning goes by whole turns, never in the turn under way", (rewrite(TALK, 9),)),
    ("a message with media is not rewritten", (rewrite(TALK, 12),)),
    ("JSON stays JSON", (rewrite(TALK, 8, '{"rows": [1,'),)),
    ("no lone surrogate leaves", (rewrite(TALK, 3, "\ud83d"),)),
    ("user and assistant still alternate", (drop(TALK, 2, 6),)),
    ("system and developer messages stay", (rewrite(TALK, 0, ""),)),
    ("reasoning goes by whole turns, never in the turn under way", (clear(TALK, 7),)),
    ("reasoning goes by whole turns, never in the turn under way", (clear(TALK, 11),)),
    ("reasoning goes by whole turns, never in the turn under way", (clear(TALK, 5),)),
    ("arguments are a JSON object", (rearrange(TALK, 2, '{"a": 1}'),)),
    ("arguments are a JSON object", (rearrange(TALK, 2, "[]"),)),
    ("arguments are a JSON object", (rearrange(TALK, 2, "{}", call=2),)),
    ("an answer is added only where one is missing", (answer(TALK, 4, "a"),)),
    ("an answer is added only where one is missing", (answer(TALK, 5, "a"),)),
    ("no lone surrogate leaves", (answer(TALK, 4, "a", "\ud83d"),)),
    ("no lone surrogate leaves", (summary(TALK, 1, "\ud83d"), drop(TALK, 2, 5))),
    (SUMMARY, (summary(TALK, 1),)),
    (SUMMARY, (summary(TALK, 1, tokens=99), drop(TALK, 2, 5))),
    (SUMMARY, (summary(TALK, 6), drop(TALK, 7, 9))),
    (SUMMARY, (summary(TALK, 5), drop(TALK, 6, 10))),
    (SUMMARY, (summary(TALK, 1, BEGIN), drop(TALK, 2, 5))),
    (SUMMARY, (summary(TALK, 1, END), drop(TALK, 2, 5))),
    (SUMMARY, (replace(summary(TALK, 1), text="as it is"), drop(TALK, 2, 5))),
    (SUMMARY, (summary(TALK, 1), drop(TALK, 2, 6))),
    (NOTE, (note(TALK, 1, 2, 3, 4),)),
    (NOTE, (note(TALK, 1, 2, 3, 4, 5), drop(TALK, 2, 5))),
    (NOTE, (note(TALK, 1), drop(TALK, 2, 5))),
    (NOTE, (note(TALK, 1, 2, 3, 4, tokens=99), drop(TALK, 2, 5))),
    (NOTE, (note(TALK, 1, 2, 3, 4, text="gone"), drop(TALK, 2, 5))),
    (NOTE, (note(TALK, 6, 7, 8), drop(TALK, 7, 9))),
    (NOTE, (replace(summary(TALK, 1), handle="kvt_x", messages=(2, 3, 4)), drop(TALK, 2, 5))),
    ("no lone surrogate leaves", (note(TALK, 1, 2, 3, 4, text="\ud83d"), drop(TALK, 2, 5))),
]


@pytest.mark.parametrize(("rule", "edits"), BREAKS)
def test_each_rule_can_be_broken(rule: str, edits: tuple[Edit, ...]) -> None:
    assert rule in broken(TALK, *edits)


def test_a_summary_that_is_right_breaks_nothing() -> None:
    assert broken(TALK, summary(TALK, 1), drop(TALK, 2, 5)) == set()
    nested = conversation(user(f"task {BEGIN}"), calling("a"), result("a"), says(), user())
    assert broken(nested, summary(nested, 0), drop(nested, 1, 3)) == {SUMMARY}


def test_a_note_that_is_right_breaks_nothing_beside_a_summary_either() -> None:
    assert broken(TALK, note(TALK, 1, 2, 3, 4), drop(TALK, 2, 5)) == set()
    named = AddSummary("p", 1, TALK.messages[1].digest, framed("x", 2, "kvt_y"), -5, "kvt_y", (2, 3))
    assert broken(TALK, named, note(TALK, 1, 4, tokens=1), drop(TALK, 2, 5)) == set()


def test_an_image_not_yet_answered_stays() -> None:
    talk = conversation(user(), says(), user(media=1), result("orphan"), user())
    assert broken(talk, drop(talk, 2, 4)) == {"what is not answered yet stays"}


def test_the_last_message_stays() -> None:
    talk = conversation(user(), says(), says())
    edit = replace(drop(talk, 1, 3), stop=3)
    assert broken(talk, edit) == {"edits lie in order within the conversation"}


def test_all_rules_are_tried_here() -> None:
    elsewhere = {"what is not answered yet stays", "the last message stays"}
    assert {rule for rule, _ in BREAKS} | elsewhere == set(RULES)


def test_edits_that_break_nothing_pass() -> None:
    assert broken(TALK) == set()
    assert broken(TALK, drop(TALK, 2, 5), drop(TALK, 6, 10)) == set()
    assert broken(TALK, rewrite(TALK, 3, "o"), rewrite(TALK, 8, '{"rows": []}')) == set()


@pytest.mark.parametrize(
    ("rule", "edit"),
    [
        ("edits lie in order within the conversation", drop(TALK, 12, 13)),
        ("edits lie in order within the conversation", replace(drop(TALK, 2, 5), start=5)),
        ("an edit names the message it was made for", replace(rewrite(TALK, 3), digest=b"")),
        ("an edit makes the prompt shorter", replace(rewrite(TALK, 3), removed_tokens=0)),
        ("an edit makes the prompt shorter", replace(rewrite(TALK, 3), removed_tokens=9999)),
    ],
)
def test_edits_that_do_not_fit_are_told_apart(rule: str, edit: Edit) -> None:
    assert rule in broken(TALK, edit)


def test_one_edit_of_a_kind_for_each_message() -> None:
    assert broken(TALK, rewrite(TALK, 3), rewrite(TALK, 3)) == {"edits lie in order within the conversation"}


def test_old_reasoning_may_go_as_a_whole_turn() -> None:
    assert broken(TALK, clear(TALK, 7), clear(TALK, 9)) == set()


def test_lines_of_instructions_may_be_stripped_and_lone_surrogates_mended() -> None:
    talk = conversation(system("first\nsecond\nthird"), user("task \ud83d"), says())
    assert broken(talk, replace(rewrite(talk, 0, "first\nthird"))) == set()
    assert broken(talk, rewrite(talk, 0, "third\nfirst")) == {"system and developer messages stay"}
    assert broken(talk, replace(rewrite(talk, 1, "task \ufffd"), removed_tokens=0)) == set()


def test_a_missing_answer_may_be_added_once() -> None:
    talk = conversation(user(), calling("a", "b"), result("a"), user())
    assert broken(talk, answer(talk, 2, "b")) == set()
    assert broken(talk, answer(talk, 2, "b"), answer(talk, 2, " b ")) == {
        "an answer is added only where one is missing"
    }


def test_broken_arguments_may_be_mended() -> None:
    asked = replace(calling("a"), calls=(ToolCall("a", "look", '{"value": '),))
    talk = conversation(user(), asked, result("a"))
    assert broken(talk, rearrange(talk, 1, "{}")) == set()


def test_edits_over_one_another_do_not_fit() -> None:
    assert broken(TALK, drop(TALK, 2, 5), rewrite(TALK, 3)) == {"edits lie in order within the conversation"}


def test_what_was_wrong_before_is_no_violation() -> None:
    talk = conversation(
        user(), says(), user(), result("orphan"), calling("half", "other"), result("half"), user(), says(), user()
    )
    assert broken(talk, drop(talk, 2, 6)) == set()


def test_what_stands_before_the_beginning_of_an_answer_is_not_answered() -> None:
    steps = [part for call in "ab" for part in (calling(call), result(call))]
    talk = conversation(user(), *steps, says("The result is"))
    assert broken(talk, drop(talk, 1, 3)) == set()
    assert broken(talk, drop(talk, 1, 5)) == {"what is not answered yet stays"}
