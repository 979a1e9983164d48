"""What `kvgate check` says of summaries that could never be made or used."""

from typing import Any

import pytest

from tests.unit.config.samples import changed, config, problems

AT = "tiers.standard.policies[2]"


def with_summary(**fields: Any) -> tuple[str, Any]:
    policies = [*changed()["tiers"]["standard"]["policies"], {"kind": "summarize_older_turns", **fields}]
    return "tiers/standard/policies", policies


@pytest.mark.parametrize(
    ("fields", "place", "told"),
    [
        ({"model": "small"}, f"{AT}.model", "unknown model 'small'"),
        ({"pool": "cheap"}, f"{AT}.pool", "unknown pool 'cheap'"),
        ({"idle_at_tokens": "2k"}, f"{AT}.idle_at_tokens", "has no effect without session"),
        ({"summarize_at_tokens": "30k"}, AT, "must ascend"),
        ({"max_tokens": "5k"}, f"{AT}.max_tokens", "would be cut off"),
        ({"max_tokens": "17k"}, AT, "must be above max_tokens"),
        ({"high_water_tokens": "40k"}, f"{AT}.high_water_tokens", "must not be above context.limit_tokens"),
        ({"by": "facts", "pool": "main"}, AT, "pool has no effect"),
        ({"words": 3}, f"{AT}.words", "unknown field"),
    ],
)
def test_each_mistake_is_named_with_its_place(fields: dict[str, Any], place: str, told: str) -> None:
    found = problems(with_summary(**fields))
    assert told in found.get(place, ""), found


def test_a_pool_must_serve_the_model_that_writes() -> None:
    models = {**changed()["models"], "small": {"geometry": "llama-3.1-8b"}}
    other = {"models": ["small"], "hardware": "h100-sxm", "replicas": ["http://127.0.0.1:9002"]}
    more = (("models", models), ("pools", {**changed()["pools"], "cheap": other}))
    assert problems(*more, with_summary(model="small", pool="cheap")) == {}
    found = problems(*more, with_summary(model="small", pool="main"))
    assert found == {f"{AT}.pool": "it does not serve 'small'; that is served by: cheap"}


def test_a_pinned_task_and_a_summary_exclude_each_other() -> None:
    place, policies = with_summary()
    found = problems((place, [{"kind": "pin", "first_turns": 1}, *policies]))
    assert "pins the task" in found["tiers.standard.policies[3]"]


def test_a_session_is_only_summarised_by_a_policy_that_can() -> None:
    expire = ("tiers/standard/session", {"expire": "summarize"})
    assert "needs {kind: summarize_older_turns}" in problems(expire)["tiers.standard.session.expire"]
    assert "written by a model" in problems(expire, with_summary(by="facts"))["tiers.standard.session.expire"]
    assert problems(expire, with_summary(idle_at_tokens="4k")) == {}
    policies = [{"kind": "summarize_older_turns"}]
    found = problems(expire, ("tiers/standard/context", {}), ("tiers/standard/policies", policies))
    assert "needs idle_at_tokens" in found["tiers.standard.policies[0]"]


def test_a_session_leaves_a_record_from_where_one_is_written_anyway() -> None:
    expire = ("tiers/standard/session", {"expire": "summarize"})
    for fields, mark in (({}, 19_200), ({"summarize_at_tokens": "18k"}, 18_000), ({"idle_at_tokens": "4k"}, 4_000)):
        made = config(expire, with_summary(**fields))
        policy = made.effective(made.tenants["acme"]).policies[2]
        assert policy.idle_at_tokens == mark  # type: ignore[union-attr]


def test_a_tenant_is_told_of_what_its_own_numbers_bring_about() -> None:
    found = problems(with_summary(max_tokens="2k"), ("tenants/acme/max_tokens", {"limit": 1024}))
    assert "would be cut off" in found["tenants.acme"]


def test_marks_are_those_of_the_context_where_it_has_none_of_its_own() -> None:
    made = config(with_summary())
    policy = made.effective(made.tenants["acme"]).policies[2]
    assert (policy.high_water_tokens, policy.low_water_tokens) == (24_000, 16_000)  # type: ignore[union-attr]
    own = config(with_summary(low_water_tokens="9k"))
    policy = own.effective(own.tenants["acme"]).policies[2]
    assert (policy.high_water_tokens, policy.low_water_tokens) == (24_000, 9_000)  # type: ignore[union-attr]


def test_numbers_are_read_as_people_write_them() -> None:
    assert problems(with_summary(timeout_seconds="2m", keep_seconds="24h", deadline_seconds="1500ms")) == {}
