"""Checks that whatever a budget of money bounds has a price.

Rule: told of the model, which is where a price is missing; a model without a price would cost nothing for ever.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from budgets.limit import Limit
from config.effective import Effective
from config.model import Config
from config.models import Model
from config.problems import Place
from config.soft_checks import budgets_of
from config.tenants import Tenant
from policies.summarize_older_turns import SummarizeOlderTurns

Found = Iterator[tuple[Place, str]]


class Lack(NamedTuple):
    """A model that would cost nothing in a pool, and the budget that counts its money."""

    budget: Limit
    model: str
    pool: str

    @property
    def strict(self) -> bool:
        return self.budget.hardness == "strict"

    @property
    def message(self) -> str:
        label = self.budget.label
        if self.strict:
            return f"the strict budget {label!r} bounds its money; add price_per_million_tokens, which is exact"
        message = f"the budget {label!r} bounds its money, but it has no price; add price_per_million_tokens"
        return f"{message}, or price_per_gpu_hour to pools.{self.pool}"


def problems(config: Config, declared: Mapping[str, Set[str]]) -> Found:
    """A part with mistakes of its own may hold the price or the bound, so nothing is said while there is one."""
    sections = {"models": config.models, "pools": config.pools, "tiers": config.tiers, "tenants": config.tenants}
    if any(declared[name] - section.keys() for name, section in sections.items()):
        return
    found: dict[str, Lack] = {}
    for tenant in config.tenants.values():
        for lack in unpriced(config, tenant, config.effective(tenant)):
            known = found.setdefault(lack.model, lack)
            found[lack.model] = lack if lack.strict and not known.strict else known
    yield from ((("models", model), lack.message) for model, lack in found.items())


def unpriced(config: Config, tenant: Tenant, may: Effective) -> Iterator[Lack]:
    """Every model without a price of which calls of the tenant would be charged in money."""
    tier = config.tiers.get(tenant.tier)
    if tier is None:
        return
    money = [budget for budget in budgets_of(config, tenant, tier) if budget.dimension == "money"]
    for bound, answering in _answering(config, may) if money else ():
        bounds = [budget for budget in money if budget.model in (None, bound.name, *bound.aliases)]
        yield from _lacks(config, bounds, answering)


def _answering(config: Config, may: Effective) -> Iterator[tuple[Model, Model]]:
    """Models by whose budgets calls are bound, each with one that may do the work, whose price is charged."""
    asked = [config.models[name] for name in sorted(may.models)]
    yield from ((model, model) for model in asked)
    for step in may.soft:
        if (other := config.model_named(step.model or "")) is not None:
            yield from ((model, other) for model in asked)
    for policy in may.policies:
        writer = config.model_named(policy.model or "") if isinstance(policy, SummarizeOlderTurns) else None
        if writer is not None:
            yield writer, writer


def _lacks(config: Config, bounds: Sequence[Limit], model: Model) -> Iterator[Lack]:
    if model.price_per_million_tokens is not None:
        return
    pools = config.pools_for(model)
    free = next((pool.name for pool in pools if pool.price_per_gpu_hour_nanos is None), None)
    for budget in bounds:
        if budget.hardness == "strict" or free is not None:
            yield Lack(budget, model.name, free or "")
