"""Tool outputs that say again what was said."""

import json
from collections.abc import Sequence

from msgspec.structs import replace

from policies.conversation import Conversation, Message
from policies.dedupe_tool_output import DedupeToolOutput
from policies.drop_stale_turns import DropStaleTurns
from policies.edit import apply
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, Memory
from policies.plan import Plan, plan
from policies.policy import Policy
from policies.sizes import may_act
from policies.trim_tool_output import Tools, TrimToolOutput
from policies.validate import violations
from tests.unit.policies.conversations import Counter, calling, conversation, count, result, says, system, user

DEDUPE = DedupeToolOutput(min_tokens=64)
FILE = "".join(f"line {number} of the file\n" for number in range(60))
OTHER = FILE.replace("file", "page")
JSON = json.dumps({"rows": list(range(200))})


def read(call: str, text: str, path: str = "a") -> list[Message]:
    """A turn in which a file is read."""
    return [user(), calling(call, arguments=json.dumps({"path": path})), result(call, text), says()]


def planned(
    talk: Conversation, policies: Sequence[Policy], memory: Memory = EMPTY, known: int = 0, *, cold: bool = False
) -> Plan:
    done = plan(talk, policies, memory, count, known_messages=known, cold=cold)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    assert apply(talk, done.edits).total_tokens == done.sent_tokens
    return done


def texts(talk: Conversation, done: Plan) -> list[str]:
    return [kept.text for kept in apply(talk, done.edits).messages if kept.role == "tool"]


def test_a_repeat_points_to_the_first_which_stays() -> None:
    talk = conversation(*read("a", FILE), *read("b", FILE, "b"), *read("c", OTHER, "c"))
    kept = texts(talk, planned(talk, [DEDUPE]))
    assert kept[0] == FILE and kept[2] == OTHER
    assert kept[1] == "[kvgate: the same output as an earlier one above, beginning: line 0 of the file]"


def test_a_repeat_in_json_stays_json() -> None:
    talk = conversation(*read("a", JSON), *read("b", JSON, "b"))
    assert "kvgate_same" in json.loads(texts(talk, planned(talk, [DEDUPE]))[1])


def test_a_repeat_that_was_sent_in_full_waits_for_a_step() -> None:
    talk = conversation(*read("a", FILE), *read("b", FILE, "b"))
    assert planned(talk, [DEDUPE], known=8).edits == ()
    assert planned(talk, [DEDUPE], known=8, cold=True).edits != ()


def test_a_pointer_stays_to_the_byte_without_counting() -> None:
    talk = conversation(*read("a", FILE), *read("b", FILE, "b"), user())
    first = planned(talk, [DEDUPE])
    counter = Counter()
    again = plan(talk, [], Memory.loads(first.memory.dumps()), counter, known_messages=9)
    assert isinstance(again, Plan) and again.edits == first.edits
    assert counter.calls == 0


def test_messages_of_the_same_bytes_are_told_apart_by_their_order() -> None:
    talk = conversation(*read("a", FILE), *read("a", FILE), user())
    same = replace(talk.messages[6], digest=talk.messages[2].digest)
    talk = Conversation((*talk.messages[:6], same, *talk.messages[7:]))
    tiers: list[list[Policy]] = [[DEDUPE], [DEDUPE, TrimToolOutput(max_tokens=100)]]
    for policies in tiers:
        first = planned(talk, policies)
        assert len({len(text) for text in texts(talk, first)}) == 2
        assert planned(talk, [], Memory.loads(first.memory.dumps()), 9).edits == first.edits


def test_an_outdated_reading_goes_in_a_step_and_the_latest_stays() -> None:
    talk = conversation(user(), says(), *read("a", FILE), *read("b", OTHER), user())
    assert planned(talk, [DEDUPE]).edits == ()
    kept = texts(talk, planned(talk, [DEDUPE], cold=True))
    assert kept == ["[kvgate: an older output left out; the same call was made again below]", OTHER]
    assert planned(talk, [DEDUPE.model_copy(update={"superseded": False})], cold=True).edits == ()


def test_an_error_or_a_call_with_other_arguments_supersedes_nothing() -> None:
    for later in (read("b", "error: no such file"), read("b", OTHER, "b")):
        talk = conversation(user(), says(), *read("a", FILE), *later, user())
        assert planned(talk, [DEDUPE], cold=True).edits == ()


def test_calls_side_by_side_do_not_supersede_each_other() -> None:
    talk = conversation(
        user(), says(), user(), calling("a", "b"), result("a", FILE), result("b", OTHER), says(), user()
    )
    assert planned(talk, [DEDUPE], cold=True).edits == ()


def test_a_copy_stands_in_for_its_original_when_that_is_dropped() -> None:
    parts = [system(), user(), says(), *read("a", FILE)]
    for number in range(3):
        parts += read(f"b{number}", FILE, f"b{number}")
    talk = conversation(*parts, user())
    window = KeepRecentTurns(turns=3, high_water_turns=4)
    kept = texts(talk, planned(talk, [DEDUPE, window]))
    assert [text == FILE for text in kept] == [True, False]


def test_a_copy_stands_in_as_its_original_was_trimmed() -> None:
    parts = [system(), user(), says(), *read("a", FILE)]
    for number in range(3):
        parts += read(f"b{number}", FILE, f"b{number}")
    talk = conversation(*parts, user())
    trim, window = TrimToolOutput(max_tokens=100), KeepRecentTurns(turns=3, high_water_turns=4)
    before = Conversation(talk.messages[:-5])
    first = planned(before, [DEDUPE, trim, window])
    done = planned(talk, [DEDUPE, trim, window], first.memory, len(before.messages))
    assert texts(talk, done)[0] == texts(before, first)[0] != FILE
    assert planned(talk, [], Memory.loads(done.memory.dumps()), len(talk.messages)).edits == done.edits


def test_a_window_reckons_with_what_it_brings_back() -> None:
    """Without its first turn the prompt would not be shorter: the copy in the second takes that output's place."""
    parts = [system(), user(), says(), *read("a", FILE * 4), *read("b", FILE * 4, "b"), *read("c", OTHER * 3, "c")]
    talk = conversation(*parts, *read("d", "ok", "d"), user())
    high = planned(talk, [DEDUPE]).sent_tokens - 1
    done = planned(talk, [DEDUPE, KeepRecentTurns(high_water_tokens=high, low_water_tokens=1200)])
    assert texts(talk, done) == [OTHER * 3, "ok"]
    assert done.sent_tokens <= 1200


def test_a_copy_that_stands_in_may_be_outdated_itself() -> None:
    """The window speaks after the outputs were looked through; so they are looked through again."""
    parts = [system(), user(), says(), *read("a", FILE, "x"), *read("b", FILE, "y"), *read("c", OTHER, "y")]
    talk = conversation(*parts, user())
    done = planned(talk, [DEDUPE, KeepRecentTurns(turns=3, high_water_turns=3)], known=15)
    assert ["superseded" in text or "made again" in text for text in texts(talk, done)] == [True, False]


def test_in_one_step_an_output_cut_for_its_age_gets_no_pointers() -> None:
    talk = conversation(user(), says(), *read("a", FILE, "x"), *read("b", FILE, "y"))
    policies: list[Policy] = [TrimToolOutput(max_tokens=64, age_turns=1), DEDUPE, DropStaleTurns(keep_turns=9)]
    done = plan(talk, policies, EMPTY, count, known_messages=10, idle_seconds=7200)
    assert isinstance(done, Plan)
    assert [text == FILE for text in texts(talk, done)] == [False, True]


def test_a_fresh_copy_does_not_point_to_what_was_cut_for_its_age() -> None:
    talk = conversation(user(), says(), *read("a", FILE), user(), says(), user(), says(), user())
    old = TrimToolOutput(max_tokens=64, age_turns=1)
    first = planned(talk, [DEDUPE, old], cold=True)
    assert texts(talk, first) != [FILE]
    longer = conversation(*talk.messages[:-1], *read("b", FILE, "b"))
    longer = Conversation((*talk.messages, *longer.messages[len(talk.messages) :]))
    done = planned(longer, [DEDUPE, old], first.memory, len(talk.messages))
    assert texts(longer, done)[-1] == FILE


def test_of_two_old_copies_cut_alike_the_later_points_to_the_earlier_and_unlike_ones_stand() -> None:
    parts = [*read("a", FILE, "x"), *read("b", FILE, "y"), user(), says(), user(), says(), user()]
    old = TrimToolOutput(max_tokens=64, age_turns=1)
    kept = texts(conversation(*parts), planned(conversation(*parts), [old, DEDUPE], cold=True))
    assert kept[0] != FILE and "same output" in kept[1]
    fresh = conversation(*parts[:4], user(), says(), *read("b", FILE, "y"))
    kept = texts(fresh, planned(fresh, [old, DEDUPE], cold=True))
    assert kept[0] != FILE and kept[1] == FILE


def test_what_must_stay_is_not_outdated() -> None:
    """The first turn has no closing answer, so all of it stays: what it read is its own."""
    talk = conversation(*read("a", FILE)[:3], *read("b", OTHER), user())
    assert planned(talk, [DEDUPE], cold=True).edits == ()


def test_after_a_stand_in_later_copies_point_to_it_from_memory_too() -> None:
    """The later copy points to the one that stood in for an old reading, and stands in for that one in turn."""
    old = TrimToolOutput(max_tokens=64, age_turns=4)
    head = [user(), says(), *read("a", FILE, "x"), *read("b", FILE, "y"), *read("c", FILE, "z")]
    talk = conversation(*head, user(), says(), user())
    first = planned(talk, [DEDUPE, old], cold=True)
    kept = texts(talk, first)
    assert kept[0] not in (FILE, kept[2]) and kept[1] == FILE and "same output" in kept[2]
    memory = Memory.loads(first.memory.dumps())
    window = KeepRecentTurns(turns=3, high_water_turns=4)
    later = planned(talk, [window], memory, len(talk.messages))
    assert texts(talk, later) == [FILE]


def test_tools_can_be_left_out_and_short_outputs_stay() -> None:
    talk = conversation(*read("a", FILE), *read("b", FILE, "b"), *read("c", "ok"), *read("d", "ok"))
    assert planned(talk, [DedupeToolOutput(min_tokens=64, tools=Tools(exclude=("loo*",)))]).edits == ()
    assert [edit.at for edit in planned(talk, [DEDUPE]).edits if hasattr(edit, "at")] == [6]


def test_sizes_tell() -> None:
    assert not may_act([DedupeToolOutput()], 10_000, 150, 10)
    assert may_act([DedupeToolOutput()], 10_000, 250, 10)
