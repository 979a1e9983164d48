"""Handles: made of what is kept, under a tenant's key; shown only where something is left out and may be promised."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from config.tiers import Tier
from policies.dedupe_tool_output import DedupeToolOutput
from policies.edit import ReplaceText
from policies.keeping import MAX_BYTES, NOTHING, PREFIX, Keeping
from policies.memory import EMPTY, Memory
from policies.plan import Plan, plan
from policies.trim_tool_output import TrimToolOutput
from tests.unit.policies.conversations import calling, conversation, count, result, says, user

ACME = Keeping(b"acme")
TRIM = TrimToolOutput(max_tokens=64, keep_original_seconds=60)
LONG = "\n".join(f"{number}: the quick brown fox" for number in range(300))
ROWS = json.dumps([{"id": number, "name": f"row {number}"} for number in range(300)])
TABLE = json.dumps({"rows": json.loads(ROWS), "total": 300})


def planned(text: str, keeping: Keeping, policy: TrimToolOutput = TRIM, memory: Memory = EMPTY) -> Plan:
    found = plan(
        conversation(user("Do it."), calling("c1"), result("c1", text)), [policy], memory, count, keeping=keeping
    )
    assert isinstance(found, Plan)
    return found


def only_edit(found: Plan) -> ReplaceText:
    (edit,) = found.edits
    assert isinstance(edit, ReplaceText)
    return edit


def test_the_same_output_has_the_same_handle_and_another_tenant_s_has_not() -> None:
    handle = ACME.handle_of(LONG)
    assert handle == ACME.handle_of(LONG) != ACME.handle_of(LONG + "x")
    assert handle != Keeping(b"zeta").handle_of(LONG)
    assert handle.startswith(PREFIX) and len(handle) == 20
    assert set(handle.removeprefix(PREFIX)) <= set("abcdefghijklmnopqrstuvwxyz234567")


def test_handles_that_are_not_allowed_and_texts_that_are_too_long_have_none() -> None:
    handle = ACME.handle_of(LONG)
    assert replace(ACME, only=frozenset([handle])).handle_of(LONG) == handle
    assert replace(ACME, only=frozenset(["kvo_other"])).handle_of(LONG) == NOTHING.handle_of(LONG) == ""
    assert ACME.handle_of("x" * MAX_BYTES) and not ACME.handle_of("x" * (MAX_BYTES + 1))
    assert ACME.handle_of("\ud800"), "a lone surrogate is kept too"


@pytest.mark.parametrize(
    "text", [LONG, ROWS, TABLE, json.dumps(LONG), json.dumps({"kvgate_original": ROWS}), "[1," * 999]
)
def test_the_shortened_text_names_its_handle(text: str) -> None:
    edit = only_edit(planned(text, ACME))
    assert edit.handle == ACME.handle_of(text)
    assert edit.handle in edit.text and "not recoverable" not in edit.text
    assert edit.handle not in only_edit(planned(text, NOTHING)).text


@pytest.mark.parametrize("text", [ROWS, TABLE])
def test_json_stays_json_and_names_the_handle_once(text: str) -> None:
    edit = only_edit(planned(text, ACME))
    value = json.loads(edit.text)
    assert type(value) is type(json.loads(text))
    assert edit.text.count(edit.handle) == 1
    if isinstance(value, dict):
        assert value["total"] == 300 and value["kvgate_original"] == edit.handle


def test_what_loses_nothing_names_nothing() -> None:
    spaced = json.dumps({"a": 1, "b": [2, 3]}, indent=90)
    lines = "retry\n" * 400
    for text in (spaced, lines):
        edit = only_edit(planned(text, ACME))
        assert not edit.handle and PREFIX not in edit.text


def test_without_the_setting_nothing_is_kept() -> None:
    edit = only_edit(planned(LONG, ACME, TrimToolOutput(max_tokens=64)))
    assert not edit.handle and "not recoverable" in edit.text


@given(st.text(min_size=200).map(lambda text: text * 40), st.sampled_from([64, 100, 500]))
def test_a_replay_says_the_same_while_the_handle_holds(text: str, most: int) -> None:
    policy = TrimToolOutput(max_tokens=most, keep_original_seconds=60)
    first = planned(text, ACME, policy)
    remembered = Memory.loads(first.memory.dumps())
    assert planned(text, Keeping(b"another secret"), policy, remembered).edits == first.edits
    for edit in planned(text, NOTHING, policy, remembered).edits:
        assert isinstance(edit, ReplaceText) and not edit.handle and PREFIX not in edit.text.replace(text, "")


def test_an_outdated_output_can_be_kept_too() -> None:
    ask = DedupeToolOutput(min_tokens=64, keep_original_seconds=60)
    readings = [calling("c1"), result("c1", LONG), calling("c2"), result("c2", LONG + "!")]
    talked = conversation(user(), says(), user("Do it."), *readings, user("And?"))
    for keeping, named in ((ACME, ACME.handle_of(LONG)), (NOTHING, "")):
        found = plan(talked, [ask], EMPTY, count, cold=True, keeping=keeping)
        assert isinstance(found, Plan)
        assert only_edit(found).handle == named
        assert ("kept as" in only_edit(found).text) is bool(named)


def test_the_file_says_keep_original() -> None:
    tier = Tier.model_validate({"policies": [{"kind": "trim_tool_output", "keep_original": "24h"}]})
    (policy,) = tier.policies
    assert isinstance(policy, TrimToolOutput) and policy.keep_original_seconds == 86_400
    with pytest.raises(ValueError, match="keep_original"):
        Tier.model_validate({"policies": [{"kind": "trim_tool_output", "keep_original": "31d"}]})
