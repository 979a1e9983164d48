"""Tool outputs cut to size when they arrive."""

import json

import pytest
from msgspec.structs import replace

from policies.conversation import Message
from policies.draft import Draft
from policies.frame import Frame
from policies.trim_tool_output import Tools, TrimToolOutput
from policies.trimmed import Trimmed
from policies.trimmed_text import render
from tests.unit.policies.conversations import Counter, calling, conversation, count, message, result, says, user

POLICY = TrimToolOutput(max_tokens=200)
LOG = "".join(f"{number:05} all is well with this part\n" for number in range(3000))
EMOJI = "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def trimmed(message: Message, policy: TrimToolOutput = POLICY) -> Trimmed | None:
    """The only trim of a conversation that ends with `message`, a tool's answer to c1."""
    draft = policy.revise(Draft(Frame(conversation(user(), calling("c1"), message))), count)
    return draft.trimmed.get(2)


def text_of(text: str, policy: TrimToolOutput = POLICY) -> str:
    done = trimmed(result("c1", text), policy)
    assert done is not None
    assert count(done.text) <= policy.max_tokens
    return done.text


def test_a_long_log_keeps_its_head_and_tail_by_whole_lines_and_says_what_is_missing() -> None:
    kept = text_of(LOG).splitlines()
    markers = [line for line in kept if line.startswith("[kvgate")]
    assert kept[0] == LOG.splitlines()[0] and kept[-1] == LOG.splitlines()[-1]
    assert set(kept) - set(markers) <= set(LOG.splitlines())
    assert len(markers) == 1
    assert "tokens in 298" in markers[0] and "lines left out here, not recoverable" in markers[0]


def test_most_of_the_room_is_used() -> None:
    for text in (LOG, "x" * 90_000, json.dumps([{"row": number, "value": "v" * 20} for number in range(2000)])):
        assert count(text_of(text)) >= 0.6 * POLICY.max_tokens


def test_error_lines_of_the_middle_are_kept() -> None:
    lines = LOG.splitlines(keepends=True)
    lines[1500] = "ERROR: disk 7 is full\n"
    assert "\nERROR: disk 7 is full\n[kvgate: end of what was left out]\n" in text_of("".join(lines))


def test_what_fits_is_not_touched_and_not_counted() -> None:
    counter = Counter()
    draft = Draft(Frame(conversation(user(), calling("c1"), result("c1", "x" * 4 * 196))))
    assert POLICY.revise(draft, counter) is draft
    assert counter.calls == 0


def test_only_tool_messages_are_trimmed() -> None:
    draft = Draft(Frame(conversation(user("x" * 4000), message("assistant", "y" * 4000), user("z" * 4000))))
    assert POLICY.revise(draft, count) is draft


def test_what_has_been_sent_is_not_trimmed_later() -> None:
    talk = conversation(user(), calling("a"), result("a", LOG), calling("b"), result("b", LOG))
    draft = Draft(Frame(talk), known=3)
    assert POLICY.revise(draft, count).trimmed.keys() == {4}


def test_outputs_with_images_stay_whole() -> None:
    assert trimmed(message("tool", LOG, answers="c1", media=1)) is None


@pytest.mark.parametrize(
    ("name", "tools", "cut"),
    [
        ("read_file", Tools(), True),
        (None, Tools(), True),
        ("read_file", Tools(exclude=("read_*",)), False),
        ("read_file", Tools(include=("grep", "ls")), False),
        ("grep", Tools(include=("grep", "ls")), True),
        (None, Tools(include=("grep",)), False),
    ],
)
def test_globs_choose_the_tools(name: str | None, tools: Tools, cut: bool) -> None:
    policy = TrimToolOutput(max_tokens=200, tools=tools)
    assert (trimmed(result("c1", LOG, name=name), policy) is not None) == cut


def test_a_trim_that_saves_too_little_is_not_made() -> None:
    text = "x" * 4 * 240
    assert trimmed(result("c1", text), TrimToolOutput(max_tokens=200, min_removed_tokens=40)) is not None
    assert trimmed(result("c1", text), TrimToolOutput(max_tokens=200, min_removed_tokens=100)) is None


def test_json_stays_json_with_its_keys() -> None:
    rows = [{"id": number, "body": "words " * 50} for number in range(500)]
    kept = json.loads(text_of(json.dumps({"ok": True, "rows": rows, "next": None}, indent=1)))
    assert kept.keys() == {"ok", "rows", "next"}
    assert kept["rows"][0]["id"] == 0 and kept["rows"][-1]["id"] == 499
    assert any(isinstance(row, str) and "of 500 items left out" in row for row in kept["rows"])


def test_json_that_is_only_spaced_out_loses_nothing_but_white_space() -> None:
    value = {"rows": [{"id": number} for number in range(40)]}
    assert json.loads(text_of(json.dumps(value, indent=16))) == value


def test_json_of_too_many_keys_becomes_an_excerpt_in_json() -> None:
    kept = json.loads(text_of(json.dumps({f"a rather long key {number}": number for number in range(3000)})))
    assert kept["kvgate_incomplete"] is True
    assert kept["excerpt"].startswith('{"a rather long key 0"') and "left out here" in kept["excerpt"]


def test_a_json_string_stays_a_string() -> None:
    assert isinstance(json.loads(text_of(json.dumps("word " * 5000))), str)


def test_lines_that_repeat_are_folded_and_nothing_else_is_lost() -> None:
    text = "start\n" + "retrying\n" * 900 + "".join(f"{number} fine\n" for number in range(40))
    assert text_of(text) == text.replace("retrying\n" * 900, "retrying [kvgate: this line x 900]\n")
    longer = text_of("start\n" + "retrying\n" * 900 + LOG)
    assert longer.startswith("start\nretrying [kvgate: this line x 900]\n") and "left out here" in longer


def test_old_outputs_are_cut_in_a_step_only() -> None:
    old = TrimToolOutput(max_tokens=200, age_turns=1)
    talk = conversation(user(), calling("a"), result("a", LOG), says(), user(), calling("b"), result("b", LOG), says())
    assert old.revise(Draft(Frame(talk), known=8), count).trimmed == {}
    assert old.revise(Draft(Frame(talk)), count).trimmed == {}
    assert old.revise(Draft(Frame(talk), known=8, open=True), count).trimmed.keys() == {2}
    assert old.revise(Draft(Frame(talk), known=8), count).stepped().trimmed.keys() == {2}
    assert old.revise(Draft(Frame(talk), known=8), count).stepped(3).trimmed == {}


def test_inside_one_turn_age_is_counted_in_groups() -> None:
    rounds = [part for call in "abc" for part in (calling(call), result(call, LOG))]
    talk = conversation(user(), *rounds)
    one, two = (TrimToolOutput(max_tokens=200, age_groups=groups) for groups in (1, 2))
    assert two.revise(Draft(Frame(talk), known=7), count).trimmed == {}
    assert two.revise(Draft(Frame(talk), known=7, open=True), count).trimmed.keys() == {2}
    assert one.revise(Draft(Frame(talk), known=7, open=True), count).trimmed.keys() == {2, 4}
    assert TrimToolOutput(max_tokens=200, age_turns=1).revise(Draft(Frame(talk), open=True), count).trimmed == {}


def test_calls_made_side_by_side_are_of_one_age() -> None:
    talk = conversation(user(), calling("a", "b"), result("a", LOG), result("b", LOG), calling("c"), result("c", LOG))
    old = TrimToolOutput(max_tokens=200, age_groups=2)
    assert old.revise(Draft(Frame(talk), open=True), count).trimmed == {}
    older = TrimToolOutput(max_tokens=200, age_groups=1)
    assert older.revise(Draft(Frame(talk), open=True), count).trimmed.keys() == {2, 3}


def test_of_two_ages_both_must_be_reached() -> None:
    talk = conversation(user(), calling("a"), result("a", LOG), calling("b"), result("b", LOG), says(), user())
    for turns, groups, trimmed_at in ((1, 1, {2}), (2, 1, set()), (1, 2, set()), (1, 0, {2, 4})):
        old = TrimToolOutput(max_tokens=200, age_turns=turns, age_groups=groups)
        assert old.revise(Draft(Frame(talk), open=True), count).trimmed.keys() == trimmed_at


def test_no_cut_inside_a_grapheme() -> None:
    kept = text_of(EMOJI * 3000)
    head, _, tail = kept.partition("\n[kvgate")
    _, _, tail = tail.partition("]\n")
    assert head and tail
    assert head.replace(EMOJI, "") == "" and tail.replace(EMOJI, "") == ""


def test_surrogates_never_leave() -> None:
    text_of("\ud83d" * 9000).encode()
    assert "\U0001f600" in text_of("\ud83d\ude00" * 9000)
    json.loads(text_of('["' + "\\ud83d" * 5000 + '"]')).__repr__().encode()


def test_the_same_message_gives_the_same_bytes_and_its_trim_alone_gives_them_again() -> None:
    nested, wide = [[number] * 50 for number in range(900)], {f"key {number}": number for number in range(900)}
    for text in (LOG, "x" * 90_000, json.dumps(nested), json.dumps(wide)):
        one, two = trimmed(result("c1", text)), trimmed(result("c1", text))
        assert one is not None and one == two
        assert render(text, replace(one.trim, removed_tokens=0)) == one.text


@pytest.mark.parametrize("size", [10_000, 100_000, 1_000_000])
def test_counting_does_not_grow_with_the_output(size: int) -> None:
    for text in ("word " * (size // 5), LOG * (size // len(LOG) + 1), json.dumps(["word"] * (size // 8))):
        counter = Counter()
        POLICY.revise(Draft(Frame(conversation(user(), calling("c1"), result("c1", text)))), counter)
        assert counter.calls <= 16
        assert counter.characters <= 8 * 16 * POLICY.max_tokens


def test_an_output_denser_at_its_ends_than_in_the_middle_still_fits() -> None:
    def dense_ends(text: str) -> int:
        return len(text) - text.count(" ")

    text = "x" * 900 + " " * 90_000 + "x" * 900
    talk = conversation(user(), calling("c1"), replace(result("c1", text), tokens=1804))
    done = POLICY.revise(Draft(Frame(talk)), dense_ends).trimmed[2]
    assert dense_ends(done.text) <= POLICY.max_tokens


def test_where_no_length_helps_the_marker_alone_is_left() -> None:
    def steep(text: str) -> int:
        return 193 if len(text) > 200 else 30

    done = POLICY.revise(Draft(Frame(conversation(user(), calling("c1"), result("c1", LOG)))), steep).trimmed[2]
    assert done.text.startswith("[kvgate: about") and len(done.text) < 200


def test_a_counter_that_never_agrees_leaves_the_output_whole() -> None:
    draft = Draft(Frame(conversation(user(), calling("c1"), result("c1", LOG))))
    assert POLICY.revise(draft, lambda text: 10**6) is draft
