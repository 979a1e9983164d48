"""A plan in words and numbers."""

from budgets.cost import kv_read_bytes
from gateway.context import Planned
from gateway.pace import Pace
from gateway.plan_view import lines, predict, view, what
from policies.conversation import Message, ToolCall
from policies.covering import Cover
from policies.edit import AddSummary, ClearReasoning, DropMessages, InsertAnswer, ReplaceArguments, ReplaceText
from policies.memory import EMPTY
from policies.summary import Wanted
from tests.unit.gateway.samples import config, model

TEXT = "\n".join(f"line {number}" for number in range(100))
CUT = "line 0\n[kvgate: about 300 tokens left out]\nline 99"
MESSAGES = (
    Message("user", b"", 9, "Look."),
    Message("assistant", b"", 9, reasoning_text="Hm."),
    Message("tool", b"", 400, TEXT, name="look"),
    Message("assistant", b"", 20, calls=(ToolCall("c", "look", '{"a": '),)),
)
TRIM = ReplaceText("trim_tool_output", 2, b"", CUT, 300)


def planned(*edits: ReplaceText | DropMessages, shadow: bool = False, **more: object) -> Planned:
    removed = 0 if shadow else sum(edit.removed_tokens for edit in edits)
    made = {"shadow": edits, "shadow_reasons": ("arrival",)} if shadow else {"reasons": ("arrival",) * len(edits)}
    fields = made | {"counted": True, "message_tokens": (9, 9, 400, 20)} | more
    return Planned(() if shadow else edits, 500, 500 - removed, EMPTY, **fields)  # type: ignore[arg-type]


def test_every_kind_of_edit_has_words() -> None:
    made = (
        ClearReasoning("clear_old_reasoning", 1, b"", 7),
        ReplaceArguments("repair", 3, 0, b"", "{}", -2),
        InsertAnswer("repair", 3, b"", "c", "none", -40),
        AddSummary("summarize_older_turns", 0, b"", "A record.", -90),
    )
    assert [what(edit, MESSAGES) for edit in made] == [
        "message 1, reasoning left out",
        "message 3, arguments of call 0 made a JSON object",
        "behind message 3 an answer to a call that had none",
        "behind message 0 a record of what was left out",
    ]


def test_a_diff_shows_a_few_lines_of_what_goes_and_what_comes() -> None:
    shown = view("demo", planned(TRIM), MESSAGES, None)
    assert shown.edits[0].diff == [
        "- line 1",
        "- line 2",
        "- line 3",
        "- ... 95 lines more",
        "+ [kvgate: about 300 tokens left out]",
    ]
    assert shown.edits[0].messages == (2, 2)


def test_messages_that_go_are_named_by_their_first_lines() -> None:
    drop = DropMessages("keep_recent_turns", 1, 3, b"", 409)
    (edit,) = view("demo", planned(drop), MESSAGES, None).edits
    assert (edit.messages, edit.diff) == ((1, 2), ["- assistant: ", "- tool: line 0"])


def test_a_handle_is_not_shown() -> None:
    kept = ReplaceText("trim_tool_output", 2, b"", "[kvgate: GET /v1/artifacts/abc123]", 300, "abc123")
    (edit,) = view("demo", planned(kept), MESSAGES, None).edits
    assert "abc123" not in "".join(edit.diff)


def test_what_is_in_shadow_is_told_apart() -> None:
    told = list(lines(view("demo", planned(TRIM, shadow=True), MESSAGES, None)))
    assert told[:2] == ["500 tokens, sent as received", "in shadow, not applied, 1 edits:"]


def test_predictions_are_those_of_the_cost_model() -> None:
    geometry, hardware = model().geometry, config().pools["main"].hardware
    pace = Pace(geometry, hardware)
    found = predict(planned(TRIM, cached_tokens=80, again_tokens=30), geometry, pace, 2, 100)
    assert (found.cached_tokens, found.broken_tokens) == (80, 30)
    assert found.kv_read_bytes_saved == kv_read_bytes(geometry, 500, 100) - kv_read_bytes(geometry, 200, 100) > 0
    assert found.decode_seconds_saved > 0 and found.prefill_seconds_saved > 0
    assert predict(planned(TRIM, cached_tokens=80), geometry, pace, 0, 100).cached_tokens == 0, "never sent before"
    told = list(lines(view("demo", planned(TRIM), MESSAGES, found)))
    assert "30 tokens computed again" in told[-1]


def test_a_record_that_would_be_written_is_told() -> None:
    wanted = Wanted(Cover(0, 3), b"k", urgent=False, make=True, replaced_tokens=410)
    told = list(lines(view("demo", planned(wanted=wanted), MESSAGES, None)))
    assert told == [
        "500 tokens, sent as received",
        "summarize_older_turns: a record of messages 1 to 2 would be written by a model, ahead of need; "
        "it would replace 410 tokens",
    ]
