"""What a worker grants while the ledger is away."""

import pytest

from budgets.allowance import LocalAllowance
from budgets.ledger import Amounts, Denied, Grant, Scope
from budgets.limit import Limit

ONE: Amounts = {"requests": 1}


def scope(tenant: str = "acme", **changes: object) -> Scope:
    fields = {"name": "calls", "dimension": "requests", "amount": 60, "per_seconds": 60.0} | changes
    return Scope(tenant, (Limit.model_validate(fields),))


def grants(allowance: LocalAllowance, limits: Scope, calls: int, now: float) -> int:
    return sum(isinstance(allowance.decide(limits, ONE, now, 0.0), Grant) for _ in range(calls))


def test_a_share_is_granted_at_once_and_refills_at_that_share() -> None:
    allowance = LocalAllowance(share=0.1)
    assert grants(allowance, scope(), 100, 0.0) == 6
    assert grants(allowance, scope(), 100, 20.0) == 2
    assert grants(allowance, scope(), 100, 1e6) == 6


def test_the_wait_that_is_named_is_enough() -> None:
    allowance = LocalAllowance(share=0.1)
    grants(allowance, scope(), 6, 0.0)
    denied = allowance.decide(scope(), ONE, 1.0, 1_000.0)
    assert isinstance(denied, Denied)
    assert denied.local
    assert not denied.store_down
    assert (denied.limit, denied.used, denied.requested) == (6, 6, 1)
    assert denied.retry_after_seconds == pytest.approx(9)
    assert denied.resets_at == 1_059.0
    assert grants(allowance, scope(), 1, 1.0 + denied.retry_after_seconds) == 1


def test_a_grant_says_that_it_is_local() -> None:
    grant = LocalAllowance().decide(scope(), ONE, 0.0, 0.0)
    assert isinstance(grant, Grant)
    assert grant.local
    assert grant.amounts == ONE


def test_a_lone_call_larger_than_the_share_passes_once() -> None:
    allowance = LocalAllowance(share=0.1)
    huge: Amounts = {"requests": 50}
    assert isinstance(allowance.decide(scope(), huge, 0.0, 0.0), Grant)
    assert isinstance(allowance.decide(scope(), huge, 1.0, 0.0), Denied)


def test_open_passes_and_closed_refuses() -> None:
    assert grants(LocalAllowance(), scope(on_store_error="open"), 100, 0.0) == 100
    denied = LocalAllowance().decide(scope(on_store_error="closed"), ONE, 0.0, 0.0)
    assert isinstance(denied, Denied)
    assert denied.store_down


def test_a_limit_in_shadow_refuses_nothing() -> None:
    assert grants(LocalAllowance(), scope(mode="shadow", on_store_error="closed"), 100, 0.0) == 100


def test_all_limits_or_none() -> None:
    allowance = LocalAllowance(share=0.1)
    both = Scope("acme", (*scope().limits, *scope(name="few", amount=10).limits))
    assert grants(allowance, both, 5, 0.0) == 1
    assert grants(allowance, scope(), 100, 0.0) == 5


def test_tenants_do_not_share_and_the_number_of_buckets_is_bounded() -> None:
    allowance = LocalAllowance(share=0.1, buckets=2)
    assert [grants(allowance, scope(name), 7, 0.0) for name in ("a", "b", "c")] == [6, 6, 6]
    assert grants(allowance, scope("c"), 7, 0.0) == 0
    assert grants(allowance, scope("a"), 7, 0.0) == 6


def test_a_quota_is_spread_evenly_over_its_windows() -> None:
    allowance = LocalAllowance(share=0.1)
    daily = scope(per_seconds=None, every="day", amount=864)
    assert grants(allowance, daily, 100, 0.0) == 86
    assert grants(allowance, daily, 100, 10_000.0) == 10
    denied = allowance.decide(daily, ONE, 10_000.0, 0.0)
    assert isinstance(denied, Denied)
    assert (denied.kind, denied.local) == ("rate", True), "worth another try: it is not the quota that is spent"


def test_calls_at_once_are_not_counted_while_nobody_can_tell() -> None:
    at_once = Scope("acme", (Limit(dimension="concurrent_calls", amount=1),))
    assert grants(LocalAllowance(), at_once, 10, 0.0) == 10
