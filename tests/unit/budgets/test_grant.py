"""Grants and balances."""

import pytest

from budgets.grant import Balance, Grant
from budgets.limit import Limit
from budgets.scope import Scope
from tests.unit.budgets.samples import stood

TOKENS = Limit(name="tpm", dimension="total_tokens", amount=600, per_seconds=60, burst=900)
BYTES = Limit(name="kv", dimension="kv_read_bytes", amount=10**12, per_seconds=3600, mode="shadow")


def granted(scope: Scope, *in_use: int) -> Grant:
    return Grant("id", scope, {}, stood=stood(scope, *in_use))


def test_balances_are_in_units_and_seconds() -> None:
    grant = granted(Scope("acme", (TOKENS, BYTES)), 300_000_001, 10**12)
    assert grant.balances == (
        Balance("tpm", "total_tokens", "enforce", 900, 599, pytest.approx(30, abs=1e-3)),  # type: ignore[arg-type]
        Balance("kv", "kv_read_bytes", "shadow", 10**12, 0, 3600.0),
    )


def test_nothing_remains_in_debt() -> None:
    (balance,) = granted(Scope("acme", (TOKENS,)), 2_000_000_000).balances
    assert (balance.remaining, balance.reset_seconds) == (0, 200.0)


def test_a_grant_without_the_store_knows_no_balance() -> None:
    assert Grant("id", Scope("acme", (TOKENS,)), {}, local=True).balances == ()
