"""What a break costs and gains."""

import pytest

from policies.cap_context import CapContext
from policies.draft import Draft
from policies.edit import DropMessages, ReplaceText
from policies.frame import Frame
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY
from policies.plan import Plan, Pricing, plan
from policies.policy import Policy
from policies.pricing import pays
from policies.trim_tool_output import TrimToolOutput
from tests.unit.policies.conversations import Counter, conversation, count, system, turn, user

LLAMA_70B = Pricing(
    warm_probability=1.0,
    prefill_tokens_per_second=8000.0,
    kv_bytes_per_token=2 * 80 * 8 * 128 * 2,
    expected_decode_tokens=1000.0,
    memory_bytes_per_second=3.35e12,
)
TALK = conversation(system(), *(part for number in range(10) for part in turn(number, 300)), user())
WINDOW = KeepRecentTurns(high_water_tokens=2000, low_water_tokens=1000)


def with_decode(tokens: float) -> Pricing:
    return Pricing(1.0, 8000.0, LLAMA_70B.kv_bytes_per_token, tokens, 3.35e12)


def test_the_example_of_the_design() -> None:
    """50,000 tokens less spare 4.9 ms a token; 10,000 computed again cost 1.25 s: it pays after about 255 tokens."""
    assert LLAMA_70B.kv_bytes_per_token == 327_680
    assert with_decode(1).gain_seconds(50_000, 0) == pytest.approx(0.00489, abs=1e-5)
    assert with_decode(255).gain_seconds(50_000, 10_000) < 0 < with_decode(256).gain_seconds(50_000, 10_000)


def test_a_step_that_has_only_just_begun_to_pay_waits() -> None:
    assert not with_decode(256).pays(50_000, 10_000)
    assert with_decode(1020).pays(50_000, 10_000) < with_decode(1024).pays(50_000, 10_000)
    assert with_decode(1).pays(1, 0)


def test_a_prefix_that_is_gone_costs_nothing() -> None:
    gone = Pricing(0.0, 8000.0, 1.0, 1.0, 1e12)
    assert gone.gain_seconds(1, 10**6) > 0


def edits(pricing: Pricing | None, policies: list[Policy], known: int = 41) -> set[type]:
    done = plan(TALK, policies, EMPTY, count, known_messages=known, pricing=pricing)
    assert isinstance(done, Plan)
    return {type(edit) for edit in done.edits}


def test_a_window_that_does_not_pay_is_put_off() -> None:
    assert edits(None, [WINDOW]) == {DropMessages}
    assert edits(with_decode(1e5), [WINDOW]) == {DropMessages}
    assert edits(with_decode(10), [WINDOW]) == set()


def test_what_was_never_sent_costs_nothing() -> None:
    assert edits(with_decode(10), [WINDOW], known=0) == {DropMessages}


def test_a_limit_forces_it() -> None:
    assert edits(with_decode(10), [WINDOW, CapContext(limit_tokens=2500)]) == {DropMessages}


def test_old_outputs_go_where_it_pays_and_where_a_limit_forces_it() -> None:
    old = TrimToolOutput(max_tokens=64, age_turns=2)
    assert edits(None, [old]) == set()
    assert edits(with_decode(10), [old]) == set()
    assert edits(with_decode(1e5), [old]) == {ReplaceText}
    assert edits(None, [old, CapContext(limit_tokens=2500)]) == {ReplaceText}


def test_what_is_put_off_is_not_counted_on_every_turn() -> None:
    counter = Counter()
    policies: list[Policy] = [TrimToolOutput(max_tokens=64, age_turns=2), WINDOW]
    done = plan(TALK, policies, EMPTY, counter, known_messages=41, pricing=with_decode(10))
    assert isinstance(done, Plan) and done.edits == ()
    assert counter.calls == 0
    assert edits(with_decode(1e5), policies) == {ReplaceText, DropMessages}


def test_only_the_part_that_pays_is_done() -> None:
    """The nearer to the end, the less there is to compute again."""
    old = TrimToolOutput(max_tokens=64, age_turns=2)
    found = []
    for decode in (400, 800, 1600, 1e5):
        done = plan(TALK, [old], EMPTY, count, known_messages=41, pricing=with_decode(decode))
        assert isinstance(done, Plan)
        found.append([edit.at for edit in done.edits if isinstance(edit, ReplaceText)])
    assert [len(ats) for ats in found] == sorted(len(ats) for ats in found)
    assert found[0] == [] and found[-1] == [3, 7, 11, 15, 19, 23, 27, 31, 35]
    assert all(ats == found[-1][len(found[-1]) - len(ats) :] for ats in found)


def test_what_is_computed_again_is_what_stands_behind() -> None:
    """An output near the end may go where one at the beginning may not."""
    for at, pays_there in ((1, False), (8, True)):
        parts = [part for number in range(10) for part in turn(number, 900 if number == at else 30)]
        talk = conversation(system(), *parts, user("x" * 20_000))
        old = TrimToolOutput(max_tokens=64, age_turns=1, min_removed_tokens=100)
        done = plan(talk, [old], EMPTY, count, known_messages=41, pricing=with_decode(2400))
        assert isinstance(done, Plan)
        assert (done.edits != ()) == pays_there


def test_without_prices_and_in_the_cold_every_step_pays() -> None:
    before = Draft(Frame(TALK), known=41)
    after = before.with_cut(37)
    assert pays(before, after, None)
    assert not pays(before, after, with_decode(1))
    assert pays(Draft(Frame(TALK), known=41, open=True), after, with_decode(1))
