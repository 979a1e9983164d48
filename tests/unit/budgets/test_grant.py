"""Grants, balances, and what is kept of a call whose worker died."""

import pytest

from budgets.grant import Balance, Grant
from budgets.lease import Amounts, prompt_share
from budgets.limit import Dimension, Limit
from budgets.scope import Scope

TOKENS = Limit(name="tpm", dimension="total_tokens", amount=600, per_seconds=60, burst=900)
BYTES = Limit(name="kv", dimension="kv_read_bytes", amount=10**12, per_seconds=3600, mode="shadow")


def test_balances_are_in_units_and_seconds() -> None:
    grant = Grant("id", Scope("acme", (TOKENS, BYTES)), {}, in_use=(300_000_001, 10**12))
    assert grant.balances == (
        Balance("tpm", "total_tokens", "enforce", 900, 599, pytest.approx(30, abs=1e-3)),  # type: ignore[arg-type]
        Balance("kv", "kv_read_bytes", "shadow", 10**12, 0, 3600.0),
    )


def test_nothing_remains_in_debt() -> None:
    (balance,) = Grant("id", Scope("acme", (TOKENS,)), {}, in_use=(2_000_000_000,)).balances
    assert (balance.remaining, balance.reset_seconds) == (0, 200.0)


def test_a_grant_without_the_store_knows_no_balance() -> None:
    assert Grant("id", Scope("acme", (TOKENS,)), {}, local=True).balances == ()


@pytest.mark.parametrize(
    ("dimension", "kept"),
    [
        ("requests", 1),
        ("prefill_tokens", 50),
        ("cached_tokens", 10),
        ("decode_tokens", 0),
        ("total_tokens", 60),
        ("kv_read_bytes", 0),
        ("concurrent_calls", 0),
    ],
)
def test_a_dead_call_keeps_its_prompt(dimension: Dimension, kept: int) -> None:
    amounts: Amounts = {
        "requests": 1,
        "prefill_tokens": 50,
        "cached_tokens": 10,
        "decode_tokens": 30,
        "total_tokens": 90,
        "kv_read_bytes": 12345,
    }
    assert prompt_share(dimension, amounts) == kept
    assert prompt_share(dimension, {}) == 0
