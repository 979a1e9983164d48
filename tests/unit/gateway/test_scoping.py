"""Whose budgets bound a call: every level's, and of a model's only those of that model."""

from typing import Any

import pytest

from gateway.counting import Counter
from gateway.kept import MAX_SCOPES, Kept
from gateway.scoping import bounding, levels, scope_of, session_owner
from gateway.service import Service
from tests.unit.gateway.samples import KEYS, caller, model

RATE = {"name": "r", "dimension": "requests", "amount": 5, "per": "1m"}
READS = {"name": "k", "dimension": "kv_read_bytes", "amount": "1TB", "every": "day"}
LEVELS: tuple[tuple[str, Any], ...] = (
    ("organisations", {"group": {"budgets": [RATE]}}),
    ("tenants/acme/organisation", "group"),
    ("tenants/acme/keys", [{**KEYS[0], "budgets": [RATE]}]),
    ("tiers/standard/session", {"budgets": [RATE, READS]}),
)


def service(*changes: tuple[str, Any]) -> Service:
    return Service(caller(*changes), model(), (), Counter(len))


def test_every_level_has_its_own_bucket() -> None:
    found = service(*LEVELS).scope_of("s-1")
    buckets = [terms.bucket for terms in found.standing(0).terms]
    assert buckets == [
        "organisation/group/r:requests",
        "tenant/acme/total_tokens_per_60s:total_tokens",
        "key/acme/laptop/r:requests",
        "session/acme/s-1/r:requests",
        "session/acme/s-1/k:kv_read_bytes:day:1970-01-01",
    ]
    assert found.space == "kvgate:1:{group}"


def test_a_tenant_on_its_own_is_its_own_tree() -> None:
    found = scope_of(caller(), model())
    assert found.space == "kvgate:1:{acme}"
    assert [terms.bucket for terms in found.standing(0).terms] == ["total_tokens_per_60s:total_tokens"]
    assert [owner.label for owner, _ in levels(caller())] == ["tenant:acme", "key:laptop"]


@pytest.mark.parametrize(("named", "bound"), [("demo", True), ("gpt-4o-mini", True), ("other", False)])
def test_a_limit_of_a_model_bounds_that_model_under_all_its_names(named: str, bound: bool) -> None:
    (limit,) = caller(("tiers/standard/budgets", [{**RATE, "model": "demo"}])).may.budgets
    named_so = limit.model_copy(update={"model": named})
    assert bounding((named_so,), model()) == ((named_so,) if bound else ())


def test_what_belongs_to_no_session_has_no_sessions_limits() -> None:
    of_sessions = service(*LEVELS)
    assert of_sessions.scope_of("") is of_sessions.scope
    without = service()
    assert without.scope_of("s-1") is without.scope


def test_callers_share_the_room_for_scopes_and_no_scope() -> None:
    kept = Kept()
    made = [Service(caller(*LEVELS), model(*LEVELS), (), Counter(len), kept=kept) for _ in range(2)]
    scopes = [each.scope_of("s-0") for each in made]
    assert scopes[0] is not scopes[1]
    assert [each.scope_of("s-0") for each in made] == scopes
    assert kept.scopes.weight == 2


def test_scopes_of_sessions_are_kept_but_not_without_end() -> None:
    of_sessions = service(*LEVELS)
    first = of_sessions.scope_of("s-0")
    assert of_sessions.scope_of("s-0") is first
    for number in range(1, MAX_SCOPES + 1):
        of_sessions.scope_of(f"s-{number}")
    assert of_sessions.scope_of("s-0") is not first
    assert session_owner(of_sessions.caller, "s-0").label == "session:s-0"
