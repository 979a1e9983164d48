"""A refusal says whose limit, which, by how much and for how long; the SDKs sleep for just that long."""

import math
from dataclasses import replace
from typing import Any

import pytest

from budgets.ledger import Denied
from gateway.denials import fault_of
from gateway.errors import QuotaSpent, RateLimited, StoreDown, answer

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


def test_money_and_gpu_time_are_told_in_whole_units() -> None:
    money = replace(DENIED, dimension="money", limit=12_500_000_000, used=12_400_000_000, requested=150_000_001)
    fault = fault_of(money)
    assert [fault.extra[name] for name in ("limit", "used", "requested")] == [12.5, 12.4, 0.150000001]
    assert "limit 12.5, used 12.4, requested 0.150000001" in fault.message
    assert fault_of(replace(DENIED, dimension="gpu_seconds", limit=3_600_000_000)).extra["limit"] == 3600


@pytest.mark.parametrize(
    ("wait", "seconds", "milliseconds"), [(2.4001, b"3", b"2401"), (0.0004, b"1", b"1"), (2.0, b"2", b"2000")]
)
def test_the_wait_is_never_too_short(wait: float, seconds: bytes, milliseconds: bytes) -> None:
    headers = dict(fault_of(replace(DENIED, retry_after_seconds=wait)).headers)
    assert headers[b"retry-after"] == seconds
    assert headers[b"retry-after-ms"] == milliseconds
    assert headers[b"x-should-retry"] == b"true"


@pytest.mark.parametrize(("wait", "worth"), [(0.0, b"true"), (120.0, b"true"), (120.1, b"false"), (1e6, b"false")])
def test_no_sdk_is_sent_to_sleep_for_longer_than_two_minutes(wait: float, worth: bytes) -> None:
    headers = dict(fault_of(replace(DENIED, retry_after_seconds=wait)).headers)
    assert headers[b"x-should-retry"] == worth
    assert headers[b"retry-after-ms"] == b"%d" % math.ceil(wait * 1000)


@pytest.mark.parametrize(("dimension", "kind"), [("requests", "requests"), ("concurrent_calls", "requests")])
def test_the_type_is_what_ran_out(dimension: Any, kind: str) -> None:
    assert answer(fault_of(replace(DENIED, dimension=dimension))).type == kind
    assert answer(fault_of(DENIED)).type == "tokens"
    assert answer(fault_of(replace(DENIED, dimension=dimension, kind="quota"))).type == "insufficient_quota"


def test_a_limit_that_cannot_be_checked_is_our_fault() -> None:
    fault = fault_of(replace(DENIED, store_down=True))
    assert isinstance(fault, StoreDown)
    assert "acme" not in fault.message


QUOTA = replace(DENIED, kind="quota", owner="organisation:group", label="monthly")


@pytest.mark.parametrize(("wait", "told"), [(119.2, b"120"), (120.0, b"120"), (120.1, None), (86_400.0, None)])
def test_nobody_is_told_to_sleep_until_a_quota_begins_anew(wait: float, told: bytes | None) -> None:
    fault = fault_of(replace(QUOTA, retry_after_seconds=wait))
    assert isinstance(fault, QuotaSpent)
    headers = dict(fault.headers)
    assert headers.get(b"retry-after") == told
    assert headers[b"x-should-retry"] == b"false"
    assert b"retry-after-ms" not in headers
    assert fault.extra["scope"] == "organisation:group"
    assert "anew at 2023-11-14T22:13:20.500+00:00" in fault.message


def test_the_status_of_a_quota_is_the_limits() -> None:
    assert [answer(fault_of(replace(QUOTA, status=status))).status for status in (429, 402)] == [429, 402]
    assert answer(fault_of(QUOTA)).code == "insufficient_quota"


def test_a_call_that_never_passes_is_not_worth_another_try() -> None:
    fault = fault_of(replace(DENIED, never=True, retry_after_seconds=1e9))
    assert isinstance(fault, RateLimited)
    assert fault.headers == ((b"x-should-retry", b"false"),)


def test_a_reset_beyond_the_calendar_is_its_last_day() -> None:
    assert fault_of(replace(DENIED, resets_at=1e18)).extra["resets_at"] == "9999-12-31T23:59:59.000+00:00"
