"""Numbers that contradict each other, in a tier and after a tenant's overrides."""

from typing import Any

import pytest

from tests.unit.config.samples import problems


@pytest.mark.parametrize(
    ("context", "field", "expected"),
    [
        ({"low_water_tokens": "25k"}, "low_water_tokens", "25000 must be below high_water_tokens (24000); lower it"),
        ({"low_water_tokens": "24k"}, "low_water_tokens", "24000 must be below high_water_tokens (24000); lower it"),
        ({"high_water_tokens": "33k"}, "high_water_tokens", "33000 must not be above limit_tokens (32000); lower it"),
        ({"limit_tokens": "20k"}, "high_water_tokens", "24000 must not be above limit_tokens (20000); lower it"),
        ({"high_water_tokens": None}, "low_water_tokens", "needs high_water_tokens, the mark at which the window"),
    ],
)
@pytest.mark.parametrize("part", ["tiers.standard", "tenants.acme"])
def test_marks(part: str, context: dict[str, Any], field: str, expected: str) -> None:
    right = {"limit_tokens": "32k", "high_water_tokens": "24k", "low_water_tokens": "16k"}
    written = {**right, **context} if part.startswith("tiers") else context
    found = problems((f"{part.replace('.', '/')}/context", written))
    assert found.keys() == {f"{part}.context.{field}"}
    assert found[f"{part}.context.{field}"].startswith(expected)


def test_low_water_above_the_limit_without_a_high_mark() -> None:
    found = problems(("tiers/standard/context", {"limit_tokens": 10, "low_water_tokens": 20}))
    assert "needs high_water_tokens" in found["tiers.standard.context.low_water_tokens"]


@pytest.mark.parametrize("part", ["tiers.standard", "tenants.acme"])
def test_a_default_above_the_limit(part: str) -> None:
    found = problems((f"{part.replace('.', '/')}/max_tokens", {"default": 9_000, "limit": 4_096}))
    assert found == {f"{part}.max_tokens.default": "9000 must not be above limit (4096); lower it or raise limit"}


@pytest.mark.parametrize("part", ["tiers.standard", "tenants.acme"])
def test_a_session_that_outlives_itself(part: str) -> None:
    found = problems((f"{part.replace('.', '/')}/session", {"ttl": "2d"}))
    assert found == {
        f"{part}.session.ttl": "172800 must not be above absolute_ttl (86400); lower it or raise absolute_ttl"
    }


@pytest.mark.parametrize("part", ["tiers.standard", "tenants.acme"])
def test_sources_of_identity_that_contradict_each_other(part: str) -> None:
    place = f"{part}.session.identity"
    twice = problems((f"{part.replace('.', '/')}/session", {"identity": ["vendor", "vendor"]}))
    assert twice == {place: "vendor is listed twice; list it once"}
    lost = problems((f"{part.replace('.', '/')}/session", {"identity": ["vendor"], "history": "stored"}))
    assert "put it first" in lost[place]
    assert not problems((f"{part.replace('.', '/')}/session", {"identity": []}))


@pytest.mark.parametrize("part", ["tiers.standard", "tenants.acme"])
def test_a_history_larger_than_all_the_text_there_may_be(part: str) -> None:
    sizes = {"history_bytes": "2MiB", "stored_bytes": "1MiB"}
    found = problems((f"{part.replace('.', '/')}/session", sizes | {"history": "stored"}))
    told = "2097152 must not be above stored_bytes (1048576); lower it or raise stored_bytes"
    assert found == {f"{part}.session.history_bytes": told}
    assert not problems((f"{part.replace('.', '/')}/session", sizes)), "where none is stored"


@pytest.mark.parametrize("part", ["tiers.standard", "tenants.acme"])
def test_marks_without_a_window_would_do_nothing(part: str) -> None:
    found = problems((f"{part.replace('.', '/')}/policies", []))
    assert found.keys() == {f"{part}.context.high_water_tokens"}
    assert "add {kind: keep_recent_turns}" in found[f"{part}.context.high_water_tokens"]


def test_a_mistake_of_the_tier_is_told_once_and_not_of_its_tenants() -> None:
    assert problems(("tiers/standard/max_tokens/default", 9_000)).keys() == {"tiers.standard.max_tokens.default"}


def test_an_override_can_mend_nothing_in_the_tier() -> None:
    """The tier stays wrong for whoever comes next, so it is told even when its only tenant overrides it."""
    found = problems(("tiers/standard/max_tokens/default", 9_000), ("tenants/acme/max_tokens", {"default": 5}))
    assert found.keys() == {"tiers.standard.max_tokens.default"}


def test_equal_numbers_are_no_contradiction() -> None:
    assert problems(("tiers/standard/max_tokens", {"default": 4_096, "limit": 4_096})) == {}
    assert problems(("tiers/standard/context/high_water_tokens", "32k")) == {}


STRICT = {"dimension": "total_tokens", "amount": "5M", "every": "day", "hardness": "strict"}


@pytest.mark.parametrize(
    "change",
    [
        ("tiers/standard/budgets", [STRICT]),
        ("tiers/standard/session", {"budgets": [STRICT]}),
        ("tenants/acme/budgets", [STRICT]),
        ("tenants/acme/keys/0/budgets", [STRICT]),
    ],
)
def test_a_strict_budget_needs_a_bound_of_what_is_generated(change: tuple[str, object]) -> None:
    assert problems(change) == {}
    assert problems(change, ("tiers/standard/max_tokens", {"limit": 100})) == {}
    assert problems(change, ("tiers/standard/max_tokens", {})) == {
        "tenants.acme": "the strict budget 'total_tokens_every_day' needs max_tokens, with a default or a limit"
    }
