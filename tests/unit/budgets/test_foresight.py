"""When a call would pass: the rule of the reserving script, in whole parts."""

import pytest

from budgets.foresight import NEVER, wait_seconds
from budgets.limit import Limit
from budgets.scope import Owner, Terms
from budgets.statement import Account

NOW = 1_000_000.0
RATE = Limit(dimension="total_tokens", amount=100, per_seconds=50)
QUOTA = Limit(dimension="total_tokens", amount=100, every="hour")
STRICT = Limit(dimension="total_tokens", amount=100, every="hour", hardness="strict")
SLOTS = Limit(dimension="concurrent_calls", amount=2)
HOUR_ENDS = 278 * 3_600  # NOW is in the hour that begins at 277 * 3,600
"""Seconds since 1970."""


def account(limit: Limit, used: int, reserved: int = 0) -> Account:
    return Account(Terms.of(limit, Owner("tenant", "acme"), NOW), used, reserved, 0, 0.0)


@pytest.mark.parametrize(
    ("limit", "used", "reserved", "asked", "seconds"),
    [
        (RATE, 0, 0, 100, 0.0),
        (RATE, 50, 0, 50, 0.0),
        (RATE, 50, 0, 51, 0.5),
        (RATE, 40, 20, 60, 10.0),
        (RATE, 150, 0, 10, 30.0),
        (RATE, 0, 0, 1_000, 0.0),
        (RATE, 10, 0, 1_000, 5.0),
        (RATE, 100, 0, 0, 0.5),
        (QUOTA, 99, 0, 1, 0.0),
        (QUOTA, 100, 0, 1, HOUR_ENDS - NOW),
        (STRICT, 0, 0, 101, NEVER),
        (STRICT, 50, 0, 51, HOUR_ENDS - NOW),
        (SLOTS, 0, 1, 1, 0.0),
        (SLOTS, 0, 2, 1, 1.0),
    ],
)
def test_the_wait_by_what_is_in_use(limit: Limit, used: int, reserved: int, asked: int, seconds: float) -> None:
    assert wait_seconds(account(limit, used, reserved), asked, NOW) == pytest.approx(seconds)
