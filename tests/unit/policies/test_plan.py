"""The policies of a tier, run together over one conversation and over a growing one."""

from collections.abc import Iterator, Sequence

import pytest

from policies.cap_context import CapContext
from policies.clear_old_reasoning import ClearOldReasoning
from policies.conversation import Conversation, Message
from policies.dedupe_tool_output import DedupeToolOutput
from policies.edit import DropMessages, ReplaceText, apply
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, InForce, Memory, Trim
from policies.pin import Pin
from policies.plan import Plan, Refuse, plan
from policies.policy import Policy
from policies.repair import Repair
from policies.sizes import may_act
from policies.strip import Strip
from policies.trim_tool_output import TrimToolOutput
from policies.validate import violations
from tests.unit.policies.conversations import Counter, calling, conversation, count, result, says, system, turn, user

TRIM = TrimToolOutput(max_tokens=200)
KEEP = KeepRecentTurns(turns=2, high_water_turns=3)
CAP = CapContext(limit_tokens=1000)
OTHERS = (Strip(), Repair(), Pin(roles=("system",)), DedupeToolOutput(), ClearOldReasoning())
TRIMS = TrimToolOutput(max_tokens=1000)
OLD = TrimToolOutput(max_tokens=100, age_turns=2)
LONG = "all is well here\n" * 400


def talk(turns: int, result_tokens: int = 300) -> Conversation:
    return conversation(system(), *(part for number in range(turns) for part in turn(number, result_tokens)))


def planned(
    talk: Conversation,
    policies: Sequence[Policy],
    memory: Memory = EMPTY,
    known_messages: int = 0,
    *,
    cold: bool = False,
) -> Plan:
    done = plan(talk, policies, memory, count, known_messages=known_messages, cold=cold)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    assert apply(talk, done.edits).total_tokens == done.sent_tokens
    return done


def test_policies_run_in_order_and_fold_into_edits_over_the_original() -> None:
    done = planned(talk(5), [TRIM, KEEP, CAP])
    drops = [(edit.start, edit.stop) for edit in done.edits if isinstance(edit, DropMessages)]
    trims = [edit.at for edit in done.edits if isinstance(edit, ReplaceText)]
    assert drops == [(2, 4), (5, 13)]
    assert trims == [15, 19]
    assert [edit.policy for edit in done.edits] == ["keep_recent_turns"] * 2 + ["trim_tool_output"] * 2


def test_trimming_first_can_spare_the_window() -> None:
    keep = KeepRecentTurns(high_water_tokens=1300, low_water_tokens=600)
    assert all(isinstance(edit, ReplaceText) for edit in planned(talk(5), [TRIM, keep]).edits)
    assert any(isinstance(edit, DropMessages) for edit in planned(talk(5), [keep, TRIM]).edits)


def test_nothing_to_do_gives_no_edit_and_the_same_memory() -> None:
    counter = Counter()
    done = plan(talk(2, 50), [TRIM, KEEP, CAP], EMPTY, counter)
    assert isinstance(done, Plan)
    assert (done.edits, done.shadow, done.sent_tokens) == ((), (), done.original_tokens)
    assert done.memory is EMPTY
    assert counter.calls == 0


def test_what_stays_too_long_is_refused_and_never_cut_in_silence() -> None:
    refusal = plan(conversation(user("x" * 8000)), [TRIM, KEEP, CAP], EMPTY, count)
    assert isinstance(refusal, Refuse)
    assert (refusal.limit_tokens, refusal.tokens) == (1000, 2004)


def test_of_two_caps_the_tighter_one_speaks() -> None:
    refusal = plan(conversation(user("x" * 8000)), [CAP, CapContext(limit_tokens=500)], EMPTY, count)
    assert isinstance(refusal, Refuse) and refusal.limit_tokens == 500


def test_a_window_that_can_spare_a_refusal_does() -> None:
    keep = KeepRecentTurns(turns=50)
    assert planned(talk(5), [keep, CAP]).sent_tokens <= 1000
    assert isinstance(plan(talk(5), [CAP], EMPTY, count), Refuse)


def test_an_edit_is_made_again_without_counting_and_whatever_the_policies_say_now() -> None:
    first = planned(talk(5), [TRIM, KEEP])
    memory = Memory.loads(first.memory.dumps())
    longer = talk(6, 300)
    counter = Counter()
    tiers: list[list[Policy]] = [[], [TrimToolOutput(max_tokens=5000), KeepRecentTurns(turns=100)], [TRIM, KEEP]]
    for policies in tiers:
        again = plan(longer, policies, memory, counter, known_messages=len(longer.messages))
        assert isinstance(again, Plan) and again.edits == first.edits
        assert again.memory is memory
    assert counter.calls == 0


def test_of_two_trims_the_shorter_one_holds() -> None:
    done = planned(talk(1), [TRIM, TrimToolOutput(max_tokens=100), TRIM])
    assert done.sent_tokens == planned(talk(1), [TrimToolOutput(max_tokens=100)]).sent_tokens
    assert planned(talk(1), [TrimToolOutput(max_tokens=70)], done.memory).edits == done.edits


def test_a_cold_prefix_is_decided_anew() -> None:
    first = planned(talk(5), [TRIM, KEEP])
    warm = planned(talk(5), [TrimToolOutput(max_tokens=100)], first.memory, 21)
    cold = planned(talk(5), [TrimToolOutput(max_tokens=100)], first.memory, 21, cold=True)
    assert warm.edits == first.edits
    assert [type(edit) for edit in cold.edits] == [ReplaceText] * 5


def test_a_window_of_another_history_is_not_made_again() -> None:
    first = planned(talk(5), [KEEP])
    other = conversation(system("Be long."), *talk(5).messages[1:])
    assert planned(other, [], first.memory).edits == ()


def test_a_trim_that_can_not_be_made_again_is_forgotten() -> None:
    talk = conversation(user(), calling("c"), result("c", LONG))
    trim = Trim(talk.messages[2].digest, "json", talk.messages[2].tokens, 900, level=3)
    done = planned(talk, [], Memory(InForce((trim,))), 3)
    assert done.edits == ()
    assert done.memory == EMPTY


def test_a_late_answer_brings_its_dropped_call_back() -> None:
    parts = [user(), says(), user(), calling("late"), user(), says(), user(), says(), user()]
    first = planned(conversation(*parts), [KeepRecentTurns(turns=1, high_water_turns=3)])
    assert [type(edit) for edit in first.edits] == [DropMessages]
    again = planned(conversation(*parts, says(), user(), result("late"), user()), [], first.memory)
    assert again.edits == ()


def test_shadow_counts_what_it_would_do_and_does_none_of_it() -> None:
    shadowed: list[Policy] = [TRIM.model_copy(update={"mode": "shadow"}), KEEP.model_copy(update={"mode": "shadow"})]
    real = planned(talk(5), [TRIM, KEEP])
    done = planned(talk(5), shadowed)
    assert (done.edits, done.sent_tokens) == ((), talk(5).total_tokens)
    assert done.shadow == real.edits
    assert planned(talk(6), shadowed, done.memory, 21).shadow[:4] == real.edits


def test_a_cap_in_shadow_says_that_it_would_refuse() -> None:
    done = planned(talk(5), [CapContext(limit_tokens=100, mode="shadow")])
    assert done.edits == done.shadow == ()
    assert done.shadow_refusal is not None and done.shadow_refusal.tokens == done.sent_tokens


def test_shadow_tells_only_what_it_would_add() -> None:
    done = planned(talk(3), [TRIM, KeepRecentTurns(turns=1, high_water_turns=1, mode="shadow")])
    assert {edit.policy for edit in done.edits} == {"trim_tool_output"}
    assert {edit.policy for edit in done.shadow} == {"keep_recent_turns"}


def test_standing_policies_hold_until_the_cold() -> None:
    talk = conversation(system("now: 10:00\nBe brief."), *turn(0, 300), user())
    first = planned(talk, [Strip()])
    assert planned(talk, [], first.memory, 6).edits == first.edits
    trimmed = planned(talk, [TRIM])
    assert planned(talk, [TRIM, Strip()], trimmed.memory, 6).edits == trimmed.edits
    assert planned(talk, [TRIM, Strip()], trimmed.memory, 6, cold=True).edits != trimmed.edits


def test_a_limit_forces_what_waits_before_anyone_is_refused() -> None:
    talk = conversation(system(), *turn(0, 600), *turn(1, 600), user())
    old = TrimToolOutput(max_tokens=100, age_turns=1)
    assert isinstance(plan(talk, [CAP], EMPTY, count, known_messages=9), Refuse)
    assert [edit.policy for edit in planned(talk, [old, CAP], known_messages=9).edits] == ["trim_tool_output"] * 2


def test_sizes_alone_tell_that_nothing_will_happen() -> None:
    assert not may_act([TRIM, KeepRecentTurns(turns=3), CAP], 300, 100, 5)
    assert may_act([TRIM], 300, 201, 1)
    assert may_act([KeepRecentTurns(turns=3)], 30, 10, 7)
    assert may_act([KeepRecentTurns(high_water_tokens=1000)], 1001, 100, 1)
    assert may_act([CAP], 1001, 100, 1)
    assert may_act([TRIM.model_copy(update={"mode": "shadow"})], 300, 201, 1)
    assert not may_act([], 10**9, 10**9, 10**6)


def requests(parts: Sequence[Message]) -> Iterator[Conversation]:
    """The conversation as the engine gets it: each time a user or a tool has spoken last."""
    whole = conversation(*parts)
    for at, message in enumerate(whole.messages):
        if message.role in ("user", "tool"):
            yield Conversation(whole.messages[: at + 1])


def breaks(parts: Sequence[Message], policies: Sequence[Policy], trigger_tokens: int) -> int:
    """How often what is sent does not begin with what was sent before; fails above the trigger."""
    memory, known, broken = EMPTY, 0, 0
    sent: tuple[Message, ...] = ()
    for talk in requests(parts):
        done = planned(talk, policies, memory, known)
        assert done.sent_tokens <= trigger_tokens
        view = apply(talk, done.edits).messages
        broken += view[: len(sent)] != sent
        memory, known, sent = Memory.loads(done.memory.dumps()), len(talk.messages), view
    return broken


@pytest.mark.parametrize(
    ("policies", "at_most"),
    [
        ([TrimToolOutput(max_tokens=500), KeepRecentTurns(high_water_tokens=20_000, low_water_tokens=10_000)], 1),
        ([TrimToolOutput(max_tokens=1000), KeepRecentTurns(high_water_tokens=20_000, low_water_tokens=10_000)], 3),
        ([KeepRecentTurns(high_water_tokens=20_000, low_water_tokens=4_000)], 4),
        ([TrimToolOutput(max_tokens=1000), KeepRecentTurns(turns=3, high_water_turns=15)], 4),
        ([*OTHERS, TRIMS, KeepRecentTurns(high_water_tokens=20_000, low_water_tokens=10_000)], 3),
        ([*OTHERS, TRIMS, OLD, KeepRecentTurns(high_water_tokens=20_000, low_water_tokens=10_000)], 3),
    ],
)
def test_forty_turns_with_tools_break_the_prefix_at_most_four_times(policies: list[Policy], at_most: int) -> None:
    parts = [system(), *(part for number in range(40) for part in turn(number, 2000))]
    assert breaks(parts, policies, 20_000) <= at_most


@pytest.mark.parametrize("before", [[], [user("Hello."), says("Hello!")]], ids=["one turn", "a later turn"])
def test_an_agent_at_work_stays_below_the_trigger_too(before: list[Message]) -> None:
    steps = (part for number in range(40) for part in turn(number, 2000)[1:3])
    parts = [system(), *before, user("Check all."), *steps, says(), user("And now?"), says()]
    tier: list[Policy] = [
        KeepRecentTurns(high_water_tokens=20_000, low_water_tokens=4_000),
        CapContext(limit_tokens=20_000),
    ]
    assert breaks(parts, tier, 20_000) <= 4


def test_a_window_that_fills_up_again_at_once_is_told_as_thrash() -> None:
    window = KeepRecentTurns(high_water_tokens=1000, low_water_tokens=900)
    parts = [part for number in range(12) for part in turn(number, 200)]
    memory, refilled = EMPTY, []
    for stop in range(1, len(parts) + 1):
        if parts[stop - 1].role == "user":
            done = plan(conversation(*parts[:stop]), [window], memory, count, known_messages=max(0, stop - 4))
            assert isinstance(done, Plan)
            memory = done.memory
            refilled.append(done.refilled)
    assert any(refilled) and not refilled[0]


def test_a_border_that_does_not_move_is_remembered_as_it_was_drawn() -> None:
    window = KeepRecentTurns(turns=1, high_water_turns=3)
    parts = [part for number in range(6) for part in turn(number, 20)]
    first = plan(conversation(*parts[:17]), [window], EMPTY, count)
    assert isinstance(first, Plan)
    later = plan(conversation(*parts[:21]), [window], first.memory, count, known_messages=17)
    assert isinstance(later, Plan)
    assert later.memory is first.memory and later.memory.enforced.cut is not None
    assert later.memory.enforced.cut.turns == 5
    assert later.reasons == ("again",) * len(later.edits) and not later.refilled
