"""A tenant from elsewhere is checked as one of the file is."""

import pytest

from config.joining import problems, tenant_of
from config.problems import ConfigError
from tests.unit.config.samples import config


def test_fields_are_read_as_in_the_file() -> None:
    tenant = tenant_of("beta", {"tier": "standard", "max_tokens": {"limit": "2k"}, "models": ["gpt-4o-mini"]})
    assert tenant.max_tokens is not None and tenant.max_tokens.limit == 2_000
    assert problems(config(), tenant) == []
    assert config().resolved(tenant).models == {"demo"}


@pytest.mark.parametrize(
    ("written", "place", "said"),
    [
        ({"tier": "standard", "tear": 1}, "tear", "did you mean 'tier'?"),
        ({}, "tier", "needed"),
        ({"tier": "standard", "max_tokens": {"limit": "lots"}}, "max_tokens.limit", "expected a count"),
        ({"tier": "standard", "budgets": [{"dimension": "requests", "amount": 1}]}, "budgets[0]", "either per"),
    ],
)
def test_fields_that_are_wrong_are_named(written: dict[str, object], place: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        tenant_of("beta", written)
    assert [problem.place for problem in refused.value.problems] == [place]
    assert said in str(refused.value)


@pytest.mark.parametrize(
    ("written", "place", "said"),
    [
        ({"tier": "gold"}, "tier", "unknown tier 'gold'"),
        ({"tier": "standard", "organisation": "group"}, "organisation", "unknown organisation"),
        ({"tier": "standard", "models": ["gpt-9"]}, "models[0]", "unknown model"),
        ({"tier": "standard", "context": {"limit_tokens": "2k"}}, "context.high_water_tokens", "must not be above"),
    ],
)
def test_what_does_not_fit_the_file_is_named(written: dict[str, object], place: str, said: str) -> None:
    found = problems(config(), tenant_of("beta", written))
    assert [problem.place for problem in found] == [place]
    assert said in found[0].message


def test_the_file_s_own_tenants_are_not_spoken_of() -> None:
    """Names and digests are checked within one tenant."""
    assert problems(config(), tenant_of("acme", {"tier": "standard"})) == []
