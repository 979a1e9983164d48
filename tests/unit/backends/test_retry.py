"""Retries are a share of calls, whatever the order of the two."""

from hypothesis import given
from hypothesis import strategies as st

from backends.retry import RetryBudget


def test_it_begins_full_and_is_spent_one_by_one() -> None:
    budget: RetryBudget | None = RetryBudget(most=2.0, balance=2.0)
    for _ in range(2):
        assert budget is not None
        budget = budget.spent()
    assert budget is not None
    assert budget.spent() is None


def test_five_calls_earn_one_retry() -> None:
    budget = RetryBudget(share=0.25, balance=0.0)
    for _ in range(4):
        assert budget.spent() is None
        budget = budget.earned()
    assert budget.spent() is not None


@given(st.lists(st.booleans(), max_size=400))
def test_retries_never_exceed_the_savings_and_the_share_of_calls(retries: list[bool]) -> None:
    budget, calls, done = RetryBudget(), 0, 0
    for wanted in retries:
        budget, calls = budget.earned(), calls + 1
        if wanted and (left := budget.spent()) is not None:
            budget, done = left, done + 1
        assert 0.0 <= budget.balance <= budget.most
    assert done <= budget.most + budget.share * calls
