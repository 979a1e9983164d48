"""The hard limit."""

import pytest
from pydantic import ValidationError

from policies.cap_context import CapContext, Refuse

CAP = CapContext(limit_tokens=1000, reserve_output_tokens=200)


def test_what_fits_passes() -> None:
    assert CAP.judge(800) is None


def test_what_does_not_is_refused_with_the_limit_the_size_and_the_difference() -> None:
    refusal = CAP.judge(815)
    assert isinstance(refusal, Refuse)
    assert (refusal.policy, refusal.limit_tokens, refusal.tokens) == ("cap_context", 800, 815)
    assert "815 tokens" in refusal.message and "800" in refusal.message and "15 too long" in refusal.message


def test_a_reserve_that_leaves_no_room_is_a_mistake() -> None:
    with pytest.raises(ValidationError, match="no prompt would ever fit"):
        CapContext(limit_tokens=100, reserve_output_tokens=100)
