"""Messages left out and kept: a note behind the task names them, stays as it is, and costs less than they would."""

from collections.abc import Sequence

import pytest

from policies import left_out
from policies.cap_context import CapContext
from policies.conversation import Conversation, Message
from policies.drop_stale_turns import DropStaleTurns
from policies.edit import AddNote, AddSummary, Edit, apply
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.keeping import HANDLE, NOTHING, TURNS_PREFIX, Keeping
from policies.left_out import PART_MESSAGES, parts, told, transcript
from policies.memory import EMPTY, Memory
from policies.pin import Pin
from policies.plan import Plan, plan
from policies.policy import Policy
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.validate import violations
from tests.unit.policies.conversations import calling, conversation, count, message, result, says, system, user

ACME = Keeping(b"acme")
WINDOW = KeepRecentTurns(turns=2, high_water_turns=4, keep_original_seconds=60)
BY_TOKENS = KeepRecentTokens(high_water_tokens=900, low_water_tokens=500, keep_original_seconds=60)
LONG = "the quick brown fox jumps over the lazy dog " * 20


def chat(turns: int) -> Conversation:
    talk = [part for number in range(turns) for part in (user(f"Question {number}? {LONG}"), says(f"Answer {number}."))]
    return conversation(system(), *talk[:-1])


def planned(
    of: Conversation, policies: Sequence[Policy], memory: Memory = EMPTY, keeping: Keeping = ACME, **state: float
) -> Plan:
    found = plan(of, policies, memory, count, keeping=keeping, **state)  # type: ignore[arg-type]
    assert isinstance(found, Plan)
    assert violations(of, found.edits) == ()
    assert apply(of, found.edits).total_tokens == found.sent_tokens
    return found


def note_of(edits: Sequence[Edit]) -> AddNote | None:
    return next((edit for edit in edits if isinstance(edit, AddNote)), None)


def test_a_window_that_keeps_names_what_fell_out_behind_the_task() -> None:
    of = chat(6)
    note = note_of(planned(of, [WINDOW]).edits)
    assert note is not None and note.at == 1 and note.policy == "keep_recent_turns"
    assert note.handle.startswith(TURNS_PREFIX) and HANDLE.fullmatch(note.handle)
    assert note.text == told(len(note.messages), note.handle) and note.messages == tuple(range(3, 9))
    assert note_of(planned(of, [replaced(WINDOW)]).edits) is None, "only where the policy says so"
    assert note_of(planned(of, [WINDOW], keeping=NOTHING).edits) is None, "only what may be promised"


def replaced(policy: KeepRecentTurns) -> KeepRecentTurns:
    return policy.model_copy(update={"keep_original_seconds": 0.0})


def test_the_note_stays_as_it_is_until_the_window_moves_on() -> None:
    memory, seen, sent = EMPTY, list[str](), tuple[Message, ...]()
    for turns in range(6, 16):
        of = chat(turns)
        done = planned(of, [WINDOW], memory, known_messages=max(0, len(of.messages) - 2))
        note = note_of(done.edits)
        assert note is not None
        seen.append(note.text)
        view = apply(of, done.edits).messages
        moved = "mark" in done.reasons
        assert moved or view[: len(sent)] == sent
        memory, sent = Memory.loads(done.memory.dumps()), view
    assert len(set(seen)) == 4, "one note a move"


def test_a_note_that_may_not_be_shown_any_more_is_gone_for_good() -> None:
    first = planned(chat(6), [WINDOW])
    lost = planned(chat(6), [WINDOW], first.memory, NOTHING, known_messages=11)
    assert note_of(lost.edits) is None
    assert note_of(planned(chat(6), [WINDOW], lost.memory, known_messages=11).edits) is None, "or it breaks once more"


@pytest.mark.parametrize(
    "policy",
    [
        WINDOW,
        KeepRecentTokens(high_water_tokens=800, low_water_tokens=400, keep_original_seconds=60),
        DropStaleTurns(gap_seconds=60, keep_turns=2, keep_original_seconds=60),
        DropStaleTurns(gap_seconds=None, older_than_seconds=60, keep_original_seconds=60),
        SummarizeOlderTurns(
            by="facts", high_water_tokens=800, low_water_tokens=400, max_tokens=200, keep_original_seconds=60
        ),
    ],
    ids=lambda policy: policy.kind,
)
def test_every_policy_that_drops_can_keep(policy: Policy) -> None:
    first = planned(chat(3), [policy], now_seconds=1e6)
    done = planned(chat(8), [policy], first.memory, known_messages=5, idle_seconds=99, now_seconds=1e6 + 99)
    named = [edit for edit in done.edits if isinstance(edit, AddNote | AddSummary)]
    assert len(named) == 1 and named[0].handle in named[0].text and named[0].messages
    assert ACME.handle_of_messages([chat(8).messages[at].digest for at in named[0].messages]) == named[0].handle
    without = planned(chat(8), [policy], first.memory, NOTHING, known_messages=5, idle_seconds=99, now_seconds=1e6 + 99)
    assert not HANDLE.search("".join(edit.text for edit in without.edits if isinstance(edit, AddNote | AddSummary)))


def test_a_window_behind_a_record_names_only_what_the_record_does_not_stand_for() -> None:
    record = SummarizeOlderTurns(
        by="facts", high_water_tokens=800, low_water_tokens=400, max_tokens=200, keep_original_seconds=60
    )
    first = planned(chat(6), [record])
    of = chat(14)
    done = planned(of, [WINDOW], first.memory, known_messages=11)
    summary, note = (next(e for e in done.edits if isinstance(e, kind)) for kind in (AddSummary, AddNote))
    assert not set(summary.messages) & set(note.messages) and summary.handle != note.handle
    gone = len(of.messages) - len(apply(of, done.edits).messages)
    assert len(summary.messages) + len(note.messages) == gone
    again = planned(of, [], Memory.loads(done.memory.dumps()), known_messages=len(of.messages))
    assert again.edits == done.edits


def test_an_agent_in_its_only_turn_has_a_note_too() -> None:
    steps = [part for at in range(12) for part in (calling(f"c{at}"), result(f"c{at}", LONG))]
    done = planned(conversation(user("Fix it."), *steps), [BY_TOKENS])
    note = note_of(done.edits)
    assert note is not None and note.at == 0 and note.messages[0] == 1


def test_there_is_no_note_where_it_costs_more_than_it_is_about() -> None:
    little = conversation(*[part for at in range(6) for part in (user(f"{at}?"), says(""))][:-1])
    done = planned(little, [WINDOW.model_copy(update={"high_water_turns": 4, "turns": 4})])
    assert done.edits and note_of(done.edits) is None


def test_there_is_no_note_that_would_pass_a_limit_or_touch_what_is_pinned() -> None:
    of = chat(6)
    bare = planned(of, [BY_TOKENS], keeping=NOTHING).sent_tokens
    assert note_of(planned(of, [BY_TOKENS, CapContext(limit_tokens=bare + 5)]).edits) is None
    assert note_of(planned(of, [BY_TOKENS, CapContext(limit_tokens=bare + 50)]).edits) is not None
    assert note_of(planned(of, [Pin(markers=("Question 0",)), WINDOW]).edits) is None


def test_more_than_can_be_kept_has_no_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_out, "MAX_CHARACTERS", 1_000)
    assert note_of(planned(chat(6), [WINDOW]).edits) is None


def test_what_is_kept_can_be_read_and_stays_as_it_is_when_more_goes() -> None:
    said = [user("Ask.\nTwice."), calling("c1"), result("c1", "it\nis"), says("Done.")]
    text = transcript([*said, message("user", "See?", media=2)])
    assert text == (
        "[user]\nAsk.\nTwice.\n[assistant]\n[calls look {}]\n\n[tool look]\nit\nis\n[assistant]\nDone.\n"
        "[user, with 2 media that are not kept]\nSee?"
    )
    many = [user(f"{number}") for number in range(3 * PART_MESSAGES)]
    first, more = list(parts(many[: PART_MESSAGES + 5])), list(parts(many))
    assert more[0] == first[0] and [len(part) for part in more] == [PART_MESSAGES] * 3
