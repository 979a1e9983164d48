"""Prefill and cached tokens are disjoint, whatever an engine reports."""

from budgets.usage import Usage


def test_cached_tokens_are_taken_off_the_prompt() -> None:
    assert Usage.reported(100, 30, 7) == Usage(70, 30, 7, "engine")


def test_absent_and_zero_both_leave_the_whole_prompt() -> None:
    assert Usage.reported(100, None, 7) == Usage.reported(100, 0, 7) == Usage(100, 0, 7, "engine")


def test_more_cached_than_prompt_is_cut_down() -> None:
    assert Usage.reported(100, 130, 7) == Usage(0, 100, 7, "engine")


def test_reasoning_is_part_of_what_was_generated_and_is_never_added_to_it() -> None:
    usage = Usage.reported(100, None, 7, 5)
    assert (usage.reasoning_tokens, usage.decode_tokens, usage.total_tokens) == (5, 7, 107)
    assert Usage.reported(100, None, 7, 9).reasoning_tokens == 7
    assert Usage.reported(100, None, 7).reasoning_tokens == 0


def test_totals() -> None:
    usage = Usage.reported(100, 30, 7)
    assert (usage.prompt_tokens, usage.total_tokens) == (100, 107)
    assert Usage.estimated(5, 2) == Usage(5, 0, 2, "estimated")
