"""Headers for clients: durations as OpenAI writes them, the tightest limit of each kind, the context."""

import pytest
from msgspec.structs import replace

from budgets.grant import Grant
from budgets.ledger import Scope
from budgets.limit import Limit
from budgets.scope import MICRO
from gateway.context import Planned
from gateway.reports import answer_headers, budget, duration
from policies.edit import DropMessages
from policies.memory import EMPTY
from tests.unit.budgets.samples import stood

EDIT = DropMessages("keep_recent_turns", 1, 3, b"", 9)


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        (0.0, "0ms"),
        (0.012, "12ms"),
        (0.9994, "999ms"),
        (0.9996, "1s"),
        (1.0, "1s"),
        (1.5, "1.5s"),
        (20.0, "20s"),
        (59.9994, "59.999s"),
        (59.9996, "1m0s"),
        (60.0, "1m0s"),
        (60.4, "1m0s"),
        (119.6, "2m0s"),
        (360.0, "6m0s"),
        (3599.7, "1h0m0s"),
        (3605.0, "1h0m5s"),
        (90000.0, "25h0m0s"),
    ],
)
def test_durations(seconds: float, expected: str) -> None:
    assert duration(seconds) == expected


def limit(dimension: str, amount: int, per_seconds: float, mode: str = "enforce") -> Limit:
    fields = {"dimension": dimension, "amount": amount, "per_seconds": per_seconds, "mode": mode}
    return Limit.model_validate(fields)


def test_the_limits_that_answers_tell_of_are_told() -> None:
    limits = [limit("total_tokens", 1000, 60), limit("total_tokens", 100, 10), limit("requests", 60, 60)]
    in_use = (100 * MICRO, 93 * MICRO - 1, 3 * MICRO // 2)
    told = replace(stood(Scope("acme", tuple(limits)), *in_use), tightest=(3, in_use[2], 2, in_use[1]))
    assert dict(budget(told)) == {
        b"x-ratelimit-limit-requests": b"60",
        b"x-ratelimit-remaining-requests": b"58",
        b"x-ratelimit-reset-requests": b"1.5s",
        b"x-ratelimit-limit-tokens": b"100",
        b"x-ratelimit-remaining-tokens": b"7",
        b"x-ratelimit-reset-tokens": b"9.3s",
    }


@pytest.mark.parametrize(("burst", "told"), [(None, b"q=1000;w=60;"), (250, b"q=250;w=15;"), (2_000, b"q=2000;w=120;")])
def test_the_window_of_a_rate_is_the_time_in_which_its_burst_flows_back(burst: int | None, told: bytes) -> None:
    rate = limit("total_tokens", 1000, 60).model_copy(update={"burst": burst})
    assert told in dict(budget(stood(Scope("acme", (rate,)), 0), ietf=True))[b"ratelimit-policy"]


def test_no_number_is_longer_than_a_structured_field_may_have() -> None:
    """A parser that is given sixteen digits throws all of the field away (RFC 9651, 3.3.1)."""
    reads = Limit(name="reads", dimension="kv_read_bytes", amount=20 * 10**18, every="month")
    told = dict(budget(stood(Scope("acme", (reads,)), 10**15), ietf=True))
    assert told[b"ratelimit-policy"].startswith(b'"reads";q=999999999999999;w=')
    assert told[b"ratelimit"].startswith(b'"reads";r=999999999999999;t=')


def test_the_context_is_told_and_an_estimate_is_marked() -> None:
    counted = Planned((EDIT,), 900, 300, EMPTY, counted=True)
    guessed = Planned((), 12, 12, EMPTY, counted=False)
    scope = Scope("acme", (limit("total_tokens", 100, 60),))
    assert dict(answer_headers("id-1", counted, Grant("l", Scope("acme", ()), {}))) == {
        b"x-request-id": b"id-1",
        b"x-kvgate-context": b"original=900;sent=300;edits=1",
    }
    headers = dict(answer_headers("id-1", guessed, Grant("l", scope, {}, local=True)))
    assert headers[b"x-kvgate-context"] == b"original=~12;sent=~12;edits=0"
    assert headers[b"x-kvgate-budget"] == b"local"
    assert b"x-ratelimit-limit-tokens" not in headers
