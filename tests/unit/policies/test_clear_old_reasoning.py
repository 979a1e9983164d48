"""Reasoning of turns that are over."""

from policies.clear_old_reasoning import ClearOldReasoning
from policies.conversation import Conversation
from policies.draft import Draft
from policies.edit import ClearReasoning
from policies.frame import Frame
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, Memory
from policies.pin import Pin
from policies.plan import Plan, Pricing, plan
from policies.policy import Policy
from policies.validate import violations
from tests.unit.policies.conversations import Counter, calling, conversation, count, message, result, says, system, user

THOUGHT = "hm, " * 400
CLEAR = ClearOldReasoning(min_removed_tokens=100)


def thoughtful(turns: int) -> Conversation:
    """Turns of a thought with a call, a result, and an answer with another thought; the first with one thought only."""
    parts = [system()]
    for number in range(turns):
        closing = says(thinking=THOUGHT) if number else says()
        parts += [user(), calling(f"c{number}", thinking=THOUGHT), result(f"c{number}"), closing]
    return conversation(*parts, user())


def cleared(done: object) -> list[int]:
    assert isinstance(done, Plan)
    return [edit.at for edit in done.edits if isinstance(edit, ClearReasoning)]


def test_what_was_sent_is_left_alone_while_the_prefix_is_warm() -> None:
    done = plan(thoughtful(4), [CLEAR], EMPTY, count, known_messages=13)
    assert cleared(done) == []


def test_in_the_cold_whole_turns_are_cleared_and_the_latest_keeps_its_own() -> None:
    talk = thoughtful(3)
    done = plan(talk, [CLEAR], EMPTY, count, cold=True)
    assert cleared(done) == [2, 6, 8, 10, 12]
    assert isinstance(done, Plan) and violations(talk, done.edits) == ()
    assert cleared(plan(talk, [CLEAR.model_copy(update={"keep_turns": 2})], EMPTY, count, cold=True)) == [2, 6, 8]


def test_what_is_cleared_stays_cleared_and_nothing_more() -> None:
    first = plan(thoughtful(3), [CLEAR], EMPTY, count, cold=True)
    assert isinstance(first, Plan)
    counter = Counter()
    again = plan(thoughtful(5), [CLEAR], Memory.loads(first.memory.dumps()), counter, known_messages=14)
    assert cleared(again) == cleared(first)
    assert counter.calls == 0


def test_it_rides_with_a_window_that_moves() -> None:
    policies: list[Policy] = [CLEAR, KeepRecentTurns(turns=3, high_water_turns=4)]
    done = plan(thoughtful(6), policies, EMPTY, count, known_messages=20)
    assert cleared(done) == [18, 20, 22, 24]


def test_clearing_can_spare_the_window() -> None:
    talk = thoughtful(4)
    keep = KeepRecentTurns(high_water_tokens=2000, low_water_tokens=1000)
    done = plan(talk, [CLEAR, keep], EMPTY, count, known_messages=13)
    assert isinstance(done, Plan)
    assert {edit.policy for edit in done.edits} == {"clear_old_reasoning"}
    assert done.sent_tokens <= 1000


def test_it_is_done_where_it_pays() -> None:
    cheap = Pricing(1.0, 8000.0, 327_680.0, 100_000.0, 3.35e12)
    dear = Pricing(1.0, 8000.0, 327_680.0, 10.0, 3.35e12)
    assert cleared(plan(thoughtful(4), [CLEAR], EMPTY, count, known_messages=17, pricing=dear)) == []
    assert cleared(plan(thoughtful(4), [CLEAR], EMPTY, count, known_messages=17, pricing=cheap)) != []


def test_too_little_is_not_worth_it() -> None:
    assert cleared(plan(thoughtful(3), [ClearOldReasoning()], EMPTY, count, cold=True)) != []
    assert cleared(plan(thoughtful(3), [ClearOldReasoning(min_removed_tokens=9000)], EMPTY, count, cold=True)) == []


def test_a_turn_with_a_pinned_thought_keeps_all_its_thoughts() -> None:
    parts = list(thoughtful(3).messages)
    parts[8] = message("assistant", "Remember!", thinking=THOUGHT)
    done = plan(conversation(*parts), [CLEAR, Pin(markers=("Remember!",))], EMPTY, count, cold=True)
    assert cleared(done) == [2, 10, 12]


def test_the_first_turn_is_not_torn_from_its_thoughts() -> None:
    talk = conversation(
        user(), calling("a", thinking=THOUGHT), result("a"), says(thinking=THOUGHT), user(), says(), user()
    )
    assert cleared(plan(talk, [CLEAR], EMPTY, count, cold=True)) == []


def test_a_first_turn_without_a_closing_answer_is_kept_by_its_thoughts_and_does_not_lose_them() -> None:
    first = (user(), calling("a", thinking=THOUGHT), result("a"), calling("b", thinking=THOUGHT))
    assert cleared(plan(conversation(*first, user(), says(), user()), [CLEAR], EMPTY, count, cold=True)) == []


def test_sizes_tell() -> None:
    assert not ClearOldReasoning(min_removed_tokens=1000).may_act(1000)
    assert ClearOldReasoning(min_removed_tokens=1000).may_act(1001)


def test_a_conversation_of_one_turn_has_nothing_old() -> None:
    draft = Draft(Frame(conversation(user(), says(thinking=THOUGHT))), open=True)
    assert CLEAR.revise(draft) is draft
