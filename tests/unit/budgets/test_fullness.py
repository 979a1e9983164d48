"""How full limits were when a call came: without the call itself, and without limits that refuse nothing."""

import pytest
from msgspec.structs import replace

from budgets.fullness import fullness, shares
from budgets.grant import Grant, denial
from budgets.ledger import reserving
from budgets.limit import Limit
from budgets.scope import MICRO, Scope
from tests.unit.budgets.samples import stood

TOKENS = Limit(dimension="total_tokens", amount=1_000, per_seconds=60)
STRICT = Limit(dimension="decode_tokens", amount=100, every="day", hardness="strict")
SHADOW = Limit(dimension="requests", amount=10, per_seconds=60, mode="shadow")
LANES = Limit(dimension="concurrent_calls", amount=4)
READS = Limit(dimension="kv_read_bytes", amount=10_000, per_seconds=60)
SCOPE = Scope("acme", (TOKENS, STRICT, SHADOW, LANES, READS))
AMOUNTS = {"total_tokens": 300, "decode_tokens": 20, "requests": 1, "kv_read_bytes": 2_000}


def grant(*in_use: int) -> Grant:
    asked, _ = reserving(SCOPE, AMOUNTS, 0.0, AMOUNTS | {"decode_tokens": 50})  # type: ignore[arg-type]
    return replace(asked, stood=stood(SCOPE, *in_use))


def test_what_others_use_counts_and_what_is_in_shadow_does_not() -> None:
    found = dict(shares(grant(800 * MICRO, 75 * MICRO, 9 * MICRO, 3, 7_000)))
    expected = {TOKENS.label: 0.5, STRICT.label: 0.25, LANES.label: 0.5, READS.label: 0.5}
    assert found == pytest.approx(expected)


def test_a_call_alone_finds_every_limit_empty() -> None:
    assert set(dict(shares(grant(300 * MICRO, 50 * MICRO, MICRO, 1, 2_000))).values()) == {0.0}


def test_nothing_is_known_without_the_store() -> None:
    assert fullness(Grant("an-id", SCOPE, AMOUNTS, local=True)) == []  # type: ignore[arg-type]


def test_of_a_refusal() -> None:
    terms = SCOPE.standing(0.0).terms[0]
    assert fullness(denial(grant(), terms, 900, 1.0, 1.0)) == [(TOKENS.label, 0.9)]
