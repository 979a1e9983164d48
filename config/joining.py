"""A tenant that does not stand in the file, checked against the file as if it did.

Rule: the same fields, the same checks and the same words as for the tenants of the file.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from config import name_checks, number_checks, price_checks, soft_checks, summary_checks
from config.load import SECTIONS
from config.model import Config
from config.problems import ConfigError, Problem, from_pydantic, path
from config.tenants import Tenant


def tenant_of(name: str, written: Mapping[str, Any]) -> Tenant:
    """The tenant that these fields describe. Raises `ConfigError`: fields are wrong or unknown."""
    data = {**written, "name": name}
    try:
        return Tenant.model_validate(data)
    except ValidationError as fault:
        raise ConfigError([Problem(path(place), said) for place, said in from_pydantic(fault, data, Tenant)]) from None


def problems(config: Config, tenant: Tenant) -> list[Problem]:
    """What keeps the tenant from being used under this configuration: names that do not exist, numbers that clash."""
    alone = Config.model_construct(**{**dict(config), "tenants": {tenant.name: tenant}})
    declared = {section: frozenset(getattr(alone, section)) for section in SECTIONS}
    found = [*name_checks.problems(alone, declared), *number_checks.problems(alone)]
    found += soft_checks.problems(alone, declared["pools"])
    found += summary_checks.problems(alone, declared)
    place = ("tenants", tenant.name)
    return [Problem(path(where[2:]), said) for where, said in found if where[:2] == place]


def unpriced(config: Config, tenant: Tenant) -> list[Problem]:
    """Models without a price that budgets of the tenant's money bound: calls of these are refused, others are not."""
    lacks = price_checks.unpriced(config, tenant, config.resolved(tenant))
    return list(dict.fromkeys(Problem(path(("models", lack.model)), lack.message) for lack in lacks))
