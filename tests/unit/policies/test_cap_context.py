"""The hard limit."""

import pytest
from pydantic import ValidationError

from policies.cap_context import CapContext, EngineWindow, Refuse
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY
from policies.plan import Plan, plan
from policies.policy import Policy
from tests.unit.policies.conversations import conversation, count, turn, user

CAP = CapContext(limit_tokens=1000, reserve_output_tokens=200)


def test_what_fits_passes() -> None:
    assert CAP.judge(800) is None


def test_what_does_not_is_refused_with_the_limit_the_size_and_the_difference() -> None:
    refusal = CAP.judge(815)
    assert isinstance(refusal, Refuse)
    assert (refusal.policy, refusal.limit_tokens, refusal.tokens) == ("cap_context", 800, 815)
    assert "has 815, 15 too many" in refusal.message and "800 tokens" in refusal.message


@pytest.mark.parametrize("refusal", [CAP.judge(815), CapContext(limit_tokens=1000, reply="refuse").judge(815, 200)])
def test_clients_know_a_context_that_is_too_long_by_the_words_they_look_for(refusal: Refuse | None) -> None:
    """LangChain shortens and LiteLLM falls back on these words, not on the error's code (langchain-openai 1.7, LiteLLM
    1.110; also Claude Code)."""
    assert refusal is not None
    assert "prompt is too long" in refusal.message
    assert "this model's maximum context length is" in refusal.message


def test_a_window_that_engines_report_is_theirs_to_judge_up_to_what_no_tokenizer_makes_fit() -> None:
    """Where a model's own tokenizer takes one token for a Gujarati text, ours takes up to 4.4."""
    window = EngineWindow(limit_tokens=1000)
    assert window.judge(4400) is None and window.judge(5000) is None
    refusal = window.judge(5001)
    assert refusal is not None and (refusal.limit_tokens, refusal.tokens) == (1000, 5001)
    assert window.prompt_limit_tokens() == 1000, "marks that follow the limit stay where they are"


def test_a_reserve_that_leaves_no_room_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="no prompt would ever fit"):
        CapContext(limit_tokens=100, reserve_output_tokens=100)


def test_a_reply_that_does_not_fit_beside_the_prompt_is_refused() -> None:
    cap = CapContext(limit_tokens=1000, reply="refuse")
    assert cap.judge(800, 200) is None
    assert cap.judge(999, None) is None
    refusal = cap.judge(815, 200)
    assert isinstance(refusal, Refuse)
    assert (refusal.limit_tokens, refusal.tokens) == (1000, 1015)
    assert "815 in the prompt, 200 for the reply" in refusal.message
    assert "1015, 15 too many" in refusal.message and "1000 tokens" in refusal.message
    assert cap.prompt_limit_tokens(200) == 800


def test_a_reply_is_clamped_to_what_the_prompt_leaves() -> None:
    cap = CapContext(limit_tokens=1000, reserve_output_tokens=100, reply="clamp")
    assert (cap.clamped(500, 400), cap.clamped(500, 501), cap.clamped(500, None)) == (None, 500, 500)
    assert cap.judge(900, 5000) is None and cap.judge(901, 1) is not None


@pytest.mark.parametrize("asked", [None, 1, 300, 5000])
@pytest.mark.parametrize("reply", ["apart", "refuse", "clamp"])
def test_sizes_never_hide_a_cap(reply: str, asked: int | None) -> None:
    cap = CapContext.model_validate({"limit_tokens": 1000, "reply": reply})
    for tokens in range(0, 1200, 7):
        acts = cap.judge(tokens, asked) is not None or cap.clamped(tokens, asked) is not None
        assert cap.may_act(tokens, cap.reply_size(asked)) or not acts


def test_a_plan_brings_the_prompt_down_so_that_the_reply_fits_and_says_what_is_left() -> None:
    talk = conversation(*(part for number in range(8) for part in turn(number, 100)), user())
    both: list[Policy] = [KeepRecentTurns(), CapContext(limit_tokens=600, reply="refuse")]
    done = plan(talk, both, EMPTY, count, reply_tokens=300)
    assert isinstance(done, Plan)
    assert done.sent_tokens <= 300 and done.reply_tokens is None
    done = plan(talk, [KeepRecentTurns(), CapContext(limit_tokens=600, reply="clamp")], EMPTY, count)
    assert isinstance(done, Plan)
    assert done.reply_tokens == 600 - done.sent_tokens > 0
