"""What calls in flight have reserved, summed up by tenant and dimension."""

from budgets.ledger import reserving
from budgets.limit import Limit
from budgets.scope import Scope
from gateway.outstanding import Outstanding

DAILY = Limit(name="daily", dimension="total_tokens", amount=1_000, every="day")
MONTHLY = Limit(name="monthly", dimension="total_tokens", amount=9_000, every="month")
HARD = Limit(name="hard", dimension="total_tokens", amount=9_000, every="month", hardness="strict")
LANES = Limit(name="lanes", dimension="concurrent_calls", amount=2)


def test_of_several_limits_of_a_dimension_what_one_holds_is_told_and_of_several_calls_all() -> None:
    outstanding = Outstanding()
    scope = Scope("acme", (DAILY, MONTHLY, LANES))
    first, _ = reserving(scope, {"total_tokens": 100})
    second, _ = reserving(scope, {"total_tokens": 20})
    for grant in (first, second):
        outstanding.opened(grant)
    outstanding.extended(first, {"total_tokens": 5})
    assert dict(outstanding.reserved(str)) == {("acme", "total_tokens"): 125, ("acme", "concurrent_calls"): 2}
    outstanding.closed(first)
    outstanding.extended(first, {"total_tokens": 5})
    assert dict(outstanding.reserved(str)) == {("acme", "total_tokens"): 20, ("acme", "concurrent_calls"): 1}
    assert outstanding.running(second.id) is second and outstanding.running(first.id) is None
    assert outstanding.ids == {second.id}


def test_a_strict_limit_holds_the_most_a_call_can_use() -> None:
    outstanding = Outstanding()
    grant, _ = reserving(Scope("acme", (DAILY, HARD)), {"total_tokens": 100}, most={"total_tokens": 700})
    outstanding.opened(grant)
    assert dict(outstanding.reserved(str)) == {("acme", "total_tokens"): 700}
