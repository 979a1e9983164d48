"""Soft limits that name what does not exist, or would change nothing."""

from typing import Any

import pytest

from config.effective import softened
from config.soft import Soft
from config.tiers import MaxTokens
from policies.cap_context import CapContext
from policies.keep_recent_turns import KeepRecentTurns
from tests.unit.config.samples import config, problems

BUDGET = "total_tokens_per_60s"


@pytest.mark.parametrize("part", ["tiers/standard/soft", "tenants/acme/soft"])
@pytest.mark.parametrize(
    ("step", "field", "expected"),
    [
        ({"at": "80%"}, "", "it changes nothing; add one of max_tokens"),
        ({"at": "100%", "max_tokens": 9}, ".at", "expected a share such as 80%"),
        ({"at": "0.5.5%", "max_tokens": 9}, ".at", "expected a share such as 80%"),
        ({"at": 1.5, "max_tokens": 9}, ".at", "expected a share such as 80%"),
        ({"at": True, "max_tokens": 9}, ".at", "expected a share such as 80%"),
        ({"at": "80%", "max_tokens": "5k"}, ".max_tokens", "5000 must be below max_tokens.limit (4096)"),
        ({"at": "80%", "context_tokens": "32k"}, ".context_tokens", "32000 must be below context.limit_tokens"),
        ({"at": "80%", "priority": 0}, ".priority", "0 must be above the tier's 0"),
        ({"at": "80%", "priority": 5}, ".priority", "no pool has features: {priority: true}"),
        ({"at": "80%", "tokens_per_second": 0}, ".tokens_per_second", "greater than 0"),
        ({"at": "80%", "pool": "mian"}, ".pool", "unknown pool 'mian'"),
        ({"at": "80%", "model": "dmeo"}, ".model", "unknown model 'dmeo'"),
        ({"at": "80%", "max_tokens": 9, "of": ["tokns"]}, ".of[0]", "unknown budget that refuses 'tokns'"),
        ({"at": "80%", "max_tokns": 9}, ".max_tokns", "unknown field"),
    ],
)
def test_a_step_that_is_wrong(part: str, step: dict[str, Any], field: str, expected: str) -> None:
    found = problems((part, [step]))
    place = f"{part.replace('/', '.')}[0]{field}"
    assert place in found, found
    assert expected in found[place], found


def test_two_steps_that_begin_together() -> None:
    steps = [{"at": "80%", "max_tokens": 9}, {"at": 0.8, "max_tokens": 8}]
    assert problems(("tiers/standard/soft", steps)) == {
        "tiers.standard.soft[1].at": "two soft limits begin at 80%; make them one"
    }


@pytest.mark.parametrize("mode", [None, "shadow"])
def test_steps_that_no_budget_reaches(mode: str | None) -> None:
    budgets = [{"dimension": "requests", "amount": 1, "per": "1m", "mode": mode}] if mode else []
    found = problems(("tiers/standard/budgets", budgets), ("tiers/standard/soft", [{"at": "80%", "max_tokens": 9}]))
    assert found.keys() == {"tiers.standard.soft"}


def test_a_model_that_a_tenant_may_not_use_or_whose_budget_would_not_see_the_call() -> None:
    other = {"geometry": "llama-3.1-8b"}
    served = (("models/other", other), ("pools/main/models", ["demo", "other"]))
    step = ("tiers/standard/soft", [{"at": "80%", "model": "other"}])
    assert problems(*served, step) == {}
    assert problems(*served, step, ("tenants/acme/models", ["demo"])).keys() == {"tenants.acme.models"}
    own = {"name": "own", "dimension": "requests", "amount": 1, "per": "1m", "model": "other"}
    found = problems(*served, step, ("tiers/standard/budgets", [own]))
    assert "the budget 'own' of that model would not see them" in found["tiers.standard.soft[0].model"]


def test_a_pool_that_does_not_serve_the_model_of_the_step() -> None:
    other = {"models": ["other"], "hardware": "l4", "replicas": ["http://127.0.0.1:9002"]}
    changes = (("models/other", {"geometry": "llama-3.1-8b"}), ("pools/other", other))
    step: dict[str, Any] = {"at": "80%", "model": "other", "pool": "main"}
    found = problems(*changes, ("tiers/standard/soft", [step]))
    assert found["tiers.standard.soft[0].pool"].startswith("'main' does not serve 'other'")
    assert problems(*changes, ("tiers/standard/soft", [step | {"pool": "other"}])) == {}


def test_a_right_one_of_everything() -> None:
    everything = {
        "at": "87.5%",
        "of": [BUDGET],
        "max_tokens": 256,
        "context_tokens": "8k",
        "priority": 5,
        "pool": "main",
        "model": "gpt-4o-mini",
        "tokens_per_second": 20,
    }
    steps = [everything, {"at": 0.5, "max_tokens": 512}]
    whole = config(("tiers/standard/soft", steps), ("pools/main/features", {"priority": True}))
    assert [step.label for step in whole.effective(whole.tenants["acme"]).soft] == ["87.5%", "50%"]


def test_a_step_takes_and_never_gives() -> None:
    whole = config(("tiers/standard/priority", 3))
    may = whole.effective(whole.tenants["acme"])
    less = softened(may, Soft(at=0.8, max_tokens=512, context_tokens=8_000, priority=9))
    assert less.max_tokens == MaxTokens(default=512, limit=512)
    assert (less.context.limit_tokens, less.priority, less.soft) == (8_000, 9, ())
    window = next(policy for policy in less.policies if isinstance(policy, KeepRecentTurns))
    assert (window.high_water_tokens, window.low_water_tokens) == (8_000, 4_000)
    assert less.policies[-1] == CapContext(limit_tokens=8_000)
    same = softened(may, Soft(at=0.8, max_tokens=9_000, priority=-4, tokens_per_second=1))
    assert (same.max_tokens, same.priority, same.policies) == (may.max_tokens, 3, may.policies)
