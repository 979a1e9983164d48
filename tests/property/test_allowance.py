"""What a worker grants without the ledger is never more than its share of what was left, and of what flows back."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from budgets.allowance import LocalAllowance
from budgets.ledger import Grant, Scope, reserving
from budgets.limit import Limit
from tests.unit.budgets.samples import stood

NOON = 1_699_963_200.0
SHARE = 0.1
amounts = st.integers(0, 400)
steps = st.lists(st.tuples(st.floats(0, 20), amounts, st.booleans(), st.floats(0, 1)), max_size=40)


@given(st.integers(100, 10_000), st.integers(0, 12_000), st.booleans(), steps)
def test_the_share_is_a_bound(
    amount: int, in_use: int, quota: bool, steps: list[tuple[float, int, bool, float]]
) -> None:
    """Calls come at any times, some end and have used less than they took."""
    how = {"every": "day"} if quota else {"per_seconds": 60.0}
    limit = Limit.model_validate({"dimension": "total_tokens", "amount": amount} | how)
    scope, allowance = Scope("acme", (limit,)), LocalAllowance(SHARE)
    before, _ = reserving(scope, {}, NOON)
    allowance.heard(replace(before, stood=stood(before.scope, in_use * 10**6, now_seconds=NOON)))
    granted, passed, alone = 0, 0.0, 0
    for seconds, wanted, ends, used in steps:
        passed += seconds
        asked, _ = reserving(scope, {"total_tokens": wanted}, NOON + passed)
        found = allowance.decide(asked, passed, NOON + passed)
        if isinstance(found, Grant):
            actual = int(wanted * used) if ends else wanted
            if ends:
                allowance.ended(found, {"total_tokens": actual})
            granted += actual
            alone = max(alone, wanted)
    left = max(0, amount - in_use) * SHARE
    back = 0.0 if quota else passed * limit.per_second * SHARE
    larger = alone if alone > amount * SHARE else 0  # one that is more than a whole share passes where none is in use
    assert granted <= left + back + larger * max(1, len(steps) if larger and not quota else 1) + 1e-6
