"""Which soft limit holds, and what it says of itself."""

from typing import Any

from gateway.degrading import Reached, Stage, reached
from gateway.service import Service
from tests.unit.gateway.samples import caller, config
from tests.unit.gateway.wholes import snapshot

STEPS: list[dict[str, Any]] = [
    {"at": "50%", "max_tokens": 512},
    {"at": "90%", "max_tokens": 64, "tokens_per_second": 12.5},
    {"at": "60%", "context_tokens": "8k", "mode": "shadow"},
]


def service() -> Service:
    changes = ("tiers/standard/soft", STEPS)
    return snapshot(config(changes)).service(caller(changes), "demo")


def test_the_highest_holds_and_those_in_shadow_are_told_too() -> None:
    stages = service().stages
    for share, shadow, holds in ((0.4, 0, None), (0.5, 0, "50%"), (0.7, 1, "50%"), (1.3, 1, "90%")):
        passed = reached(stages, [("other", 0.1), ("tokens", share)])
        assert [each.stage.soft.label for each in passed.shadow] == ["60%"] * shadow
        assert (passed.holds and passed.holds.stage.soft.label) == holds
        assert len(passed.all) == shadow + (holds is not None)
        assert {each.limit for each in passed.all} <= {"tokens"}


def test_what_the_client_and_the_metrics_are_told() -> None:
    stage = service().stages[1]
    assert Reached(stage, "tokens").header == (b"x-kvgate-degraded", b"tokens=90%;max_tokens=64;tokens_per_second=12.5")
    assert stage.actions == ("max_tokens", "pace")


def test_a_stage_is_bound_by_the_same_budgets_and_has_no_stages_of_its_own() -> None:
    at = service()
    for stage in at.stages:
        assert isinstance(stage, Stage)
        assert stage.service.scope == at.scope
        assert stage.service.stages == ()
    assert at.stages[0].service.caller.may.max_tokens.limit == 512
    assert at.stages[2].service.bounds.prompt_tokens == 8_000


def test_all_paces_of_a_tenant_are_on_one_schedule() -> None:
    changes = ("tiers/standard/soft", [*STEPS, {"at": "95%", "tokens_per_second": 2}])
    paces = [stage.pace for stage in snapshot(config(changes)).service(caller(changes), "demo").stages]
    one, other = [pace for pace in paces if pace is not None]
    assert one.schedule is other.schedule
    assert (one.tokens_per_second, other.tokens_per_second) == (12.5, 2)
