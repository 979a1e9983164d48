"""What a worker grants while the ledger is away: a share of every limit, as full as the limit was."""

import pytest
from msgspec.structs import replace

from budgets.allowance import MOST_HEARD, LocalAllowance
from budgets.ledger import Amounts, Denied, Grant, Scope, reserving
from budgets.limit import Limit
from tests.unit.budgets.samples import stood

ONE: Amounts = {"requests": 1}
NOON = 1_699_963_200.0  # of 2023-11-14


def scope(tenant: str = "acme", **changes: object) -> Scope:
    fields = {"name": "calls", "dimension": "requests", "amount": 60, "per_seconds": 60.0} | changes
    return Scope(tenant, (Limit.model_validate(fields),))


def asked(limits: Scope, amounts: Amounts = ONE, wall: float = NOON) -> Grant:
    """What the ledger was asked for when it was away."""
    grant, _ = reserving(limits, amounts, wall)
    return grant


def told(limits: Scope, in_use: int, wall: float = NOON) -> Grant:
    """A grant by the ledger, which said what was in use afterwards (parts of the one limit)."""
    grant = asked(limits, wall=wall)
    each = [in_use * terms.scale for terms in grant.stands.terms]
    return replace(grant, stood=stood(limits, *each, now_seconds=wall))


def decided(
    allowance: LocalAllowance, limits: Scope, amounts: Amounts = ONE, now: float = 0.0, wall: float = NOON
) -> Grant | Denied:
    return allowance.decide(asked(limits, amounts, wall), now, wall)


def grants(allowance: LocalAllowance, limits: Scope, calls: int, now: float, wall: float = NOON) -> int:
    return sum(isinstance(decided(allowance, limits, ONE, now, wall), Grant) for _ in range(calls))


def test_a_share_is_granted_at_once_and_refills_at_that_share() -> None:
    allowance = LocalAllowance(share=0.1)
    assert grants(allowance, scope(), 100, 0.0) == 6
    assert grants(allowance, scope(), 100, 20.0) == 2
    assert grants(allowance, scope(), 100, 1e6) == 6


def test_what_was_used_before_stays_used() -> None:
    allowance = LocalAllowance(share=0.1)
    allowance.heard(told(scope(), 40))
    assert grants(allowance, scope(), 100, 0.0) == 2, "a tenth of the 20 that were left"
    later = LocalAllowance(share=0.1)
    later.heard(told(scope(), 40))
    assert grants(later, scope(), 100, 0.0, NOON + 30) == 5, "and of the 30 that have flowed back since"


def test_debt_is_paid_off_first() -> None:
    allowance = LocalAllowance(share=0.1)
    allowance.heard(told(scope(), 90))
    assert grants(allowance, scope(), 1, 0.0) == 0
    assert grants(allowance, scope(), 100, 0.0, NOON + 40) == 1, "4 of its 9 have flowed back, so 1 of 6 is left"


def test_the_latest_that_was_heard_counts_whoever_heard_it() -> None:
    allowance, same = LocalAllowance(share=0.1), scope()
    allowance.heard(told(scope(), 10, NOON))
    allowance.heard(told(same, 50, NOON + 5))
    allowance.heard(told(scope(), 20, NOON + 2))
    assert grants(allowance, same, 100, 0.0, NOON + 5) == 1


def test_what_the_ledger_grants_again_begins_the_share_anew() -> None:
    allowance = LocalAllowance(share=0.1)
    assert grants(allowance, scope(), 100, 0.0) == 6
    allowance.heard(told(scope(), 30))
    assert grants(allowance, scope(), 100, 0.0) == 3


def test_what_the_ledger_grants_to_another_begins_nobody_elses_share_anew() -> None:
    """A store that answers now and then would else give every tenant its share again and again."""
    allowance = LocalAllowance(share=0.1)
    for _ in range(20):
        allowance.heard(told(scope("zeta"), 10))
        if grants(allowance, scope(), 1, 0.0) == 0:
            break
    assert grants(allowance, scope(), 100, 0.0) == 0
    for _ in range(MOST_HEARD + 1):
        allowance.heard(told(scope("zeta"), 10))
    assert grants(allowance, scope(), 100, 0.0) == 6, "the outage is over"


def test_the_wait_that_is_named_is_enough() -> None:
    allowance = LocalAllowance(share=0.1)
    grants(allowance, scope(), 6, 0.0)
    denied = decided(allowance, scope(), now=1.0, wall=NOON + 1_000)
    assert isinstance(denied, Denied)
    assert denied.local
    assert not denied.store_down
    assert (denied.limit, denied.used, denied.requested) == (6, 6, 1)
    assert denied.retry_after_seconds == pytest.approx(9)
    assert denied.resets_at == NOON + 1_059
    assert grants(allowance, scope(), 1, 1.0 + denied.retry_after_seconds) == 1


def test_a_grant_says_that_it_is_local_and_keeps_the_lease_that_may_be_in_the_ledger() -> None:
    wanted = asked(scope())
    grant = LocalAllowance().decide(wanted, 0.0, NOON)
    assert isinstance(grant, Grant)
    assert grant.local
    assert (grant.id, grant.amounts, grant.stood) == (wanted.id, ONE, None)


def test_a_lone_call_larger_than_the_share_passes_once() -> None:
    allowance = LocalAllowance(share=0.1)
    huge: Amounts = {"requests": 50}
    assert isinstance(decided(allowance, scope(), huge), Grant)
    assert isinstance(decided(allowance, scope(), huge, 1.0), Denied)


def test_what_was_used_takes_the_place_of_what_was_expected() -> None:
    allowance = LocalAllowance(share=0.1)
    six: Amounts = {"requests": 6}
    grant = decided(allowance, scope(), six)
    assert isinstance(grant, Grant)
    assert grants(allowance, scope(), 1, 0.0) == 0
    allowance.ended(grant, {"requests": 2})
    assert grants(allowance, scope(), 100, 0.0) == 4


def test_strict_limits_are_asked_for_the_most() -> None:
    allowance = LocalAllowance(share=0.1)
    strict = scope(dimension="total_tokens", amount=1_000, hardness="strict")
    little: Amounts = {"total_tokens": 10}
    wanted, _ = reserving(strict, little, NOON, {"total_tokens": 60})
    found = [allowance.decide(wanted, 0.0, NOON) for _ in range(3)]
    assert [isinstance(each, Grant) for each in found] == [True, False, False]
    first = found[0]
    assert isinstance(first, Grant)
    allowance.ended(first, {"total_tokens": 40})
    assert isinstance(allowance.decide(wanted, 0.0, NOON), Grant), "40 of 100 are in use, and no more of the 60"


def test_open_passes_and_closed_refuses() -> None:
    assert grants(LocalAllowance(), scope(on_store_error="open"), 100, 0.0) == 100
    denied = decided(LocalAllowance(), scope(on_store_error="closed"))
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


def test_a_quota_gives_its_share_once_in_a_window() -> None:
    allowance, daily = LocalAllowance(share=0.1), scope(per_seconds=None, every="day", amount=864)
    allowance.heard(told(daily, 464))
    assert grants(allowance, daily, 100, 0.0) == 40, "a tenth of the 400 that were left"
    assert grants(allowance, daily, 100, 40_000.0, NOON + 40_000) == 0
    denied = decided(allowance, daily, now=40_000.0, wall=NOON + 40_000)
    assert isinstance(denied, Denied)
    assert (denied.kind, denied.local) == ("rate", True), "worth another try: it is not the quota that is spent"
    assert (denied.retry_after_seconds, denied.resets_at) == (10.0, NOON + 43_200)
    assert grants(allowance, daily, 100, 43_200.0, NOON + 43_200) == 86, "the next day has used nothing"


def test_calls_at_once_are_a_share_too_and_their_places_come_back() -> None:
    allowance = LocalAllowance(share=0.1)
    at_once = Scope("acme", (Limit(name="lanes", dimension="concurrent_calls", amount=25),))
    running = [decided(allowance, at_once) for _ in range(3)]
    assert [isinstance(each, Grant) for each in running] == [True, True, False]
    refused = running[-1]
    assert isinstance(refused, Denied)
    assert (refused.kind, refused.limit, refused.used, refused.retry_after_seconds) == ("slots", 2, 2, 1.0)
    first = running[0]
    assert isinstance(first, Grant)
    allowance.heard(told(scope(), 1))
    allowance.ended(first, {})
    allowance.ended(first, {})
    assert grants(allowance, at_once, 5, 0.0) == 1
    one = Scope("acme", (Limit(name="one", dimension="concurrent_calls", amount=1),))
    assert grants(allowance, one, 5, 0.0) == 1, "one each at least"
