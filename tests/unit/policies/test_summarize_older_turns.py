"""Older turns replaced by a record of them: when, by which record, and what it takes to make the same edit again."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace
from pydantic import ValidationError

from policies.cap_context import CapContext, Refuse
from policies.conversation import Conversation
from policies.edit import AddSummary, apply
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, Memory
from policies.pin import Pin
from policies.plan import Plan, plan
from policies.policy import Policy
from policies.pricing import Pricing
from policies.record import BEGIN, END
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.unit.policies.conversations import Counter, calling, conversation, count, result, says, system, turn, user

MODEL = SummarizeOlderTurns(high_water_tokens=3000, low_water_tokens=1200, max_tokens=300)
FACTS = MODEL.model_copy(update={"by": "facts"})
WINDOW = KeepRecentTurns(high_water_tokens=3000, low_water_tokens=1200)
RECORD = "INTENT\nMove the service.\nFACTS\nport 8443"


def talk(turns: int, tokens: int = 200) -> Conversation:
    """Some 230 tokens a turn, each with a fact of its own."""
    parts = [part for number in range(turns) for part in turn(number, tokens)]
    return conversation(system(), user("The task."), says("The port is 8443."), *parts)


def planned(
    of: Conversation,
    *policies: Policy,
    memory: Memory = EMPTY,
    known: int = 0,
    records: Mapping[bytes, str] | None = None,
    pricing: Pricing | None = None,
) -> Plan:
    done = plan(of, policies, memory, count, known_messages=known, records=records or {}, pricing=pricing)
    assert isinstance(done, Plan)
    assert violations(of, done.edits) == ()
    return done


def test_facts_take_the_place_of_older_turns_down_to_the_low_water() -> None:
    before = talk(15)
    done = planned(before, FACTS)
    assert done.sent_tokens <= 1200 < 3000 < done.original_tokens
    after = apply(before, done.edits)
    assert [message.role for message in after.messages[:4]] == ["system", "user", "assistant", "user"]
    task = after.messages[1].text
    assert task.startswith("The task.\n\n" + BEGIN) and task.endswith(END)
    assert "The port is 8443." in task, "the answer that no longer stands"
    assert after.messages[-4:] == before.messages[-4:]


def test_a_record_of_other_messages_is_not_used_again() -> None:
    before = talk(15)
    done = planned(before, FACTS)
    assert done.summary is not None
    records = {done.summary.key: done.summary.record}
    known = len(before.messages)
    assert planned(before, memory=done.memory, known=known, records=records).edits == done.edits
    changed = list(before.messages)
    changed[4] = user("Something else?")
    other = conversation(*changed)
    again = planned(other, memory=done.memory, known=4, records=records)
    assert (again.edits, again.summary, again.memory is EMPTY) == ((), None, True)


def test_below_the_marks_nothing_is_done_and_nothing_wanted() -> None:
    for policy in (FACTS, MODEL):
        done = planned(talk(9), policy)
        assert (done.edits, done.wanted, done.memory is EMPTY) == ((), None, True)


def test_a_step_is_taken_seldom_and_what_was_sent_stays_between() -> None:
    whole, memory, known, steps = talk(40), EMPTY, 0, 0
    sent = whole.messages[:0]
    for stop in range(7, len(whole.messages) + 1, 4):
        part = Conversation(whole.messages[:stop])
        done = planned(part, FACTS, memory=memory, known=known)
        view = apply(part, done.edits).messages
        assert done.sent_tokens <= 3000
        steps += view[: len(sent)] != sent
        memory, known, sent = Memory.loads(done.memory.dumps()), stop, view
    assert 3 <= steps <= 6


def test_a_record_is_made_again_from_memory_without_a_count() -> None:
    before = talk(15)
    done = planned(before, FACTS)
    counter = Counter()
    again = plan(before, [], Memory.loads(done.memory.dumps()), counter, known_messages=len(before.messages))
    assert isinstance(again, Plan)
    assert (again.edits, counter.calls) == (done.edits, 0)


def test_facts_are_left_out_where_there_are_none() -> None:
    dull = conversation(user("x" * 4), *(part for _ in range(20) for part in (says("y" * 800), user("z"))))
    assert len(planned(dull, FACTS).edits) > 0, "the questions are facts too"
    assert (
        planned(conversation(user(""), *(part for _ in range(20) for part in (says("y" * 800), user("")))), FACTS).edits
        == ()
    )


def test_a_record_is_asked_for_ahead_of_need_and_used_at_the_mark() -> None:
    early, late = talk(11), talk(14)
    done = planned(early, MODEL, known=40)
    wanted = done.wanted
    assert wanted is not None and wanted.make and not wanted.urgent and done.edits == ()
    memory = Memory.loads(done.memory.dumps())
    assert memory.enforced.ahead is not None and memory.enforced.ahead.key == wanted.key
    again = planned(talk(12), MODEL, memory=memory, known=46).wanted
    assert again is not None and (again.key, again.cover.stop) == (wanted.key, wanted.cover.stop), (
        "the same until it is there"
    )
    ready = {wanted.key: RECORD}
    waiting = planned(talk(12), MODEL, memory=memory, known=46, records=ready)
    assert (waiting.wanted, waiting.edits) == (None, ()), "a prefix is not broken before it must be"
    used = planned(late, MODEL, memory=waiting.memory, known=54, records=ready)
    assert used.wanted is None and used.sent_tokens < 2400
    (added,) = [edit for edit in used.edits if isinstance(edit, AddSummary)]
    assert RECORD in added.text and used.memory.enforced.ahead is None
    kept = planned(talk(15), MODEL, memory=Memory.loads(used.memory.dumps()), known=58, records=ready)
    assert kept.edits == used.edits


def test_what_is_cold_is_shortened_at_once_if_the_record_is_there() -> None:
    """A session that was forgotten and comes back: nobody holds its prefix, so the deepest record is used."""
    policy = MODEL.model_copy(update={"idle_at_tokens": 1000})
    resting = planned(talk(8), policy, known=30).resting
    assert resting is not None
    back = Conversation(talk(9).messages[:36])
    asked = planned(back, policy).wanted
    assert asked is not None and not asked.make and resting.key in asked.others
    used = planned(back, policy, records={resting.key: RECORD})
    assert used.sent_tokens < 500 and used.wanted is None
    assert planned(back, policy, known=35, records={resting.key: RECORD}).edits == (), "but not while it is warm"


def test_without_a_record_the_next_policy_decides() -> None:
    before = talk(15)
    done = planned(before, MODEL, WINDOW, known=60)
    assert {edit.policy for edit in done.edits} == {"keep_recent_turns"}
    assert done.wanted is not None and done.wanted.urgent
    assert done.wanted.edits == (), "it is to be made of what was sent until now"
    ready = planned(before, MODEL, WINDOW, known=60, records={done.wanted.key: RECORD})
    assert {edit.policy for edit in ready.edits} == {"summarize_older_turns"}


def test_a_prompt_that_would_be_refused_says_what_would_help() -> None:
    refused = plan(talk(15), [MODEL, CapContext(limit_tokens=2000)], EMPTY, count, known_messages=60)
    assert isinstance(refused, Refuse) and refused.wanted is not None
    done = planned(talk(15), MODEL, CapContext(limit_tokens=2000), known=60, records={refused.wanted.key: RECORD})
    assert done.sent_tokens <= 2000


def test_the_second_record_takes_the_place_of_the_first() -> None:
    first = planned(talk(14), MODEL, known=54).wanted
    assert first is not None
    used = planned(talk(14), MODEL, known=54, records={first.key: RECORD})
    asked = planned(talk(24), MODEL, memory=used.memory, known=90, records={first.key: RECORD}).wanted
    assert asked is not None and asked.before == first.key and asked.cover.stop > first.cover.stop
    assert [edit.policy for edit in asked.edits if isinstance(edit, AddSummary)] == ["summarize_older_turns"]
    both = {first.key: RECORD, asked.key: f"{RECORD}\nand 9000"}
    done = planned(talk(24), MODEL, memory=used.memory, known=90, records=both)
    (added,) = [edit for edit in done.edits if isinstance(edit, AddSummary)]
    assert added.text.count(BEGIN) == 1 and "and 9000" in added.text


def test_a_record_whose_text_is_lost_is_forgotten_and_nothing_with_it() -> None:
    wanted = planned(talk(14), MODEL, known=54).wanted
    assert wanted is not None
    used = planned(talk(14), MODEL, known=54, records={wanted.key: RECORD})
    bare = planned(talk(14), MemoryOnly, memory=used.memory, known=59)
    assert bare.edits == ()


MemoryOnly = CapContext(limit_tokens=1_000_000)


@pytest.mark.parametrize("text", [RECORD + "x" * 12_000, "y" * 2_000])
def test_a_record_that_is_too_long_is_not_used(text: str) -> None:
    before = talk(14)
    wanted = planned(before, MODEL, known=54).wanted
    assert wanted is not None
    assert planned(before, MODEL, known=54, records={wanted.key: text}).edits == ()


def test_a_step_that_does_not_pay_waits_for_the_limit() -> None:
    dear = Pricing(1.0, 100.0, 1e3, 10.0, 1e12)
    assert planned(talk(14), FACTS, known=59, pricing=dear).edits == ()
    assert planned(talk(14), FACTS, CapContext(limit_tokens=3100), known=59, pricing=dear).edits != ()


def test_an_agent_in_one_long_turn_is_summarised_too() -> None:
    groups = [part for n in range(20) for part in (calling(f"c{n}"), result(f"c{n}", f"size = {n} MB\n" + "x" * 700))]
    before = conversation(system(), user("The task."), *groups)
    done = planned(before, FACTS)
    after = apply(before, done.edits)
    assert after.messages[2].role == "assistant" and done.sent_tokens <= 1200
    assert "size = 3 MB" in after.messages[1].text or "size = " in after.messages[1].text


def test_pinned_turns_and_a_pinned_task_are_left_alone() -> None:
    assert planned(talk(15), Pin(first_turns=1), FACTS).edits == ()
    done = planned(talk(15), Pin(markers=("Step 3?",)), FACTS)
    assert all(edit.stop <= 15 for edit in done.edits if not isinstance(edit, AddSummary) and hasattr(edit, "stop"))


def test_in_shadow_a_record_is_planned_and_not_sent() -> None:
    done = planned(talk(15), FACTS.model_copy(update={"mode": "shadow"}))
    assert done.edits == () and any(isinstance(edit, AddSummary) for edit in done.shadow)
    assert planned(talk(15), MODEL.model_copy(update={"mode": "shadow"})).wanted is None


def test_trims_of_what_stays_are_still_made() -> None:
    before = talk(15)
    done = planned(before, FACTS, TrimToolOutput(max_tokens=100))
    assert done.sent_tokens < planned(before, FACTS).sent_tokens


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"low_water_tokens": 4000, "high_water_tokens": 3000}, "must ascend"),
        ({"summarize_at_tokens": 3000, "high_water_tokens": 3000}, "must ascend"),
        ({"low_water_tokens": 900, "max_tokens": 1000}, "must be above max_tokens"),
        ({"max_tokens": 9}, "greater than or equal to 128"),
        ({"by": "facts", "model": "small"}, "model has no effect"),
        ({"by": "facts", "deadline_seconds": 3}, "deadline_seconds has no effect"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(fields: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        SummarizeOlderTurns.model_validate(fields)


def test_sizes_tell_when_nothing_can_be_done() -> None:
    assert not MODEL.may_act(2400, None) and MODEL.may_act(2401, None)
    assert not SummarizeOlderTurns().may_act(10**9, None), "without a mark there is no high water"
    assert SummarizeOlderTurns().may_act(900, 1000)


def test_after_a_pause_what_is_there_is_used_below_the_mark() -> None:
    wanted = planned(talk(11), MODEL, known=40).wanted
    assert wanted is not None
    ready = {wanted.key: RECORD}
    for idle, used in ((60.0, False), (4_000.0, True)):
        done = plan(talk(11), [MODEL], EMPTY, count, known_messages=40, records=ready, idle_seconds=idle)
        assert isinstance(done, Plan) and bool(done.edits) is used


def test_in_shadow_facts_stand_in_for_a_record_that_nobody_writes() -> None:
    done = planned(talk(15), MODEL.model_copy(update={"mode": "shadow"}), known=60)
    assert any(isinstance(edit, AddSummary) for edit in done.shadow) and done.wanted is None


def test_what_a_record_costs_follows_the_measure() -> None:
    """The gateway learns how many tokens of the model's own there are to one of its own."""
    before = talk(15)
    done = planned(before, FACTS)
    twice = Conversation(tuple(replace(message, tokens=2 * message.tokens) for message in before.messages))
    again = planned(twice, memory=done.memory, known=len(twice.messages))
    assert again.sent_tokens == 2 * done.sent_tokens
