"""A refusal says whose limit, which, by how much and for how long; the SDKs sleep for just that long."""

from dataclasses import replace

import pytest

from budgets.ledger import Denied
from gateway.denials import fault_of
from gateway.errors import RateLimited, StoreDown

DENIED = Denied("acme", "tokens", "total_tokens", 1000, 990, 50, 2.4001, 1_700_000_000.5)


def test_all_numbers_are_told() -> None:
    fault = fault_of(DENIED)
    assert isinstance(fault, RateLimited)
    assert fault.extra == {
        "scope": "tenant:acme",
        "dimension": "total_tokens",
        "limit": 1000,
        "used": 990,
        "requested": 50,
        "resets_at": "2023-11-14T22:13:20.500+00:00",
    }
    assert "limit 1000, used 990, requested 50" in fault.message


@pytest.mark.parametrize(
    ("wait", "seconds", "milliseconds"), [(2.4001, b"3", b"2401"), (0.0004, b"1", b"1"), (2.0, b"2", b"2000")]
)
def test_the_wait_is_never_too_short(wait: float, seconds: bytes, milliseconds: bytes) -> None:
    headers = dict(fault_of(replace(DENIED, retry_after_seconds=wait)).headers)
    assert headers[b"retry-after"] == seconds
    assert headers[b"retry-after-ms"] == milliseconds
    assert headers[b"x-should-retry"] == b"true"


def test_a_limit_that_cannot_be_checked_is_our_fault() -> None:
    fault = fault_of(replace(DENIED, store_down=True))
    assert isinstance(fault, StoreDown)
    assert "acme" not in fault.message
