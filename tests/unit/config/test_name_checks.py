"""Names that name nothing, and names that mean two things."""

import pytest

from tests.unit.config.samples import DIGEST, problems

OTHER = "cd" * 32


@pytest.mark.parametrize(
    ("changes", "place", "expected"),
    [
        (
            [("models/two", {"geometry": "tiny", "aliases": ["gpt-4o-mini"]}), ("pools/main/models", ["demo", "two"])],
            "models.two.aliases[0]",
            "'gpt-4o-mini' is an alias of 'demo' already; remove one",
        ),
        (
            [("models/two", {"geometry": "tiny", "aliases": ["demo"]}), ("pools/main/models", ["demo", "two"])],
            "models.two.aliases[0]",
            "'demo' is the name of a model; choose another alias",
        ),
        (
            [("models/demo/aliases", ["demo"])],
            "models.demo.aliases[0]",
            "'demo' is the name of a model; choose another alias",
        ),
        (
            [("pools/main/models", ["demo", "dmeo"])],
            "pools.main.models[1]",
            "unknown model 'dmeo'; did you mean 'demo'?",
        ),
        (
            [("tenants/acme/models", ["zzz"])],
            "tenants.acme.models[0]",
            "unknown model 'zzz'; known here: demo, gpt-4o-mini",
        ),
        (
            [("models/two", {"geometry": "tiny"})],
            "models.two",
            "no pool serves it; add its name to the models of a pool",
        ),
        ([("tenants/acme/tier", "standart")], "tenants.acme.tier", "unknown tier 'standart'; did you mean 'standard'?"),
        (
            [("tenants/emca", {"tier": "standard", "keys": [{"name": "b", "sha256": DIGEST.upper()}]})],
            "tenants.emca.keys[0].sha256",
            "the key 'b' is the same as 'acme.laptop'; a key belongs to one tenant, once",
        ),
        (
            [("tenants/acme/keys", [{"name": "a", "sha256": DIGEST}, {"name": "b", "sha256": DIGEST}])],
            "tenants.acme.keys[1].sha256",
            "the key 'b' is the same as 'acme.a'; a key belongs to one tenant, once",
        ),
        (
            [("tenants/acme/keys", [{"name": "a", "sha256": DIGEST}, {"name": "a", "sha256": OTHER}])],
            "tenants.acme.keys[1].name",
            "two keys are named 'a'; rename one",
        ),
        (
            [("tenants/acme/budgets", [{"dimension": "requests", "amount": 9, "per": "1m"}] * 2)],
            "tenants.acme.budgets[1]",
            "two budgets are called 'requests_per_60s'; give one of them a name",
        ),
        (
            [("pools/main/replicas", ["http://a:1", {"url": "http://A:1/", "name": "b"}])],
            "pools.main",
            "two replicas have the url http://a:1; remove one",
        ),
        (
            [("pools/main/replicas", [{"url": "http://a:1", "name": "x"}, {"url": "http://a:2", "name": "x"}])],
            "pools.main",
            "two replicas have the name x; remove one",
        ),
    ],
)
def test_a_wrong_name(changes: list[tuple[str, object]], place: str, expected: str) -> None:
    assert problems(*changes) == {place: expected}


def test_a_pool_and_a_tenant_may_name_a_model_by_its_alias() -> None:
    assert problems(("pools/main/models", ["gpt-4o-mini"]), ("tenants/acme/models", ["gpt-4o-mini"])) == {}


def test_an_alias_twice_in_one_model_does_no_harm() -> None:
    assert problems(("models/demo/aliases", ["a", "a"])) == {}


def test_an_entry_copied_whole_is_told_once() -> None:
    found = problems(("tenants/acme/keys", [{"name": "a", "sha256": DIGEST}] * 2))
    assert found == {"tenants.acme.keys[1].name": "two keys are named 'a'; rename one"}


def test_a_replica_may_stand_in_two_pools() -> None:
    second = {"models": ["demo"], "hardware": "h100-sxm", "replicas": ["http://127.0.0.1:9001"]}
    assert problems(("pools/second", second)) == {}


DAILY = {"dimension": "total_tokens", "amount": "5M", "every": "day"}


def test_an_organisation_must_exist() -> None:
    assert problems(("tenants/acme/organisation", "grup"), ("organisations", {"group": {}})) == {
        "tenants.acme.organisation": "unknown organisation 'grup'; did you mean 'group'?"
    }
    assert problems(("tenants/acme/organisation", "group"), ("organisations", {"group": None})) == {}


@pytest.mark.parametrize(
    ("where", "place"),
    [
        ("tiers/standard/budgets", "tiers.standard.budgets"),
        ("tenants/acme/budgets", "tenants.acme.budgets"),
        ("tiers/standard/session", "tiers.standard.session.budgets"),
        ("tenants/acme/keys/0/budgets", "tenants.acme.keys[0].budgets"),
        ("organisations", "organisations.group.budgets"),
    ],
)
def test_budgets_are_checked_wherever_they_are_written(where: str, place: str) -> None:
    budgets: object = [DAILY, DAILY, DAILY | {"model": "nope"}]
    if where == "organisations":
        budgets = {"group": {"budgets": budgets}}
    elif where.endswith("session"):
        budgets = {"budgets": budgets}
    found = problems((where, budgets))
    assert found[f"{place}[1]"] == "two budgets are called 'total_tokens_every_day'; give one of them a name"
    assert found[f"{place}[2].model"].startswith("unknown model 'nope'")
    assert len(found) == 2


def test_a_budget_may_name_an_alias() -> None:
    assert problems(("tiers/standard/budgets", [DAILY | {"model": "gpt-4o-mini"}])) == {}
