"""Checks that whatever a budget of money bounds has a price.

Rule: told of the model, which is where a price is missing; a model without a price would cost nothing for ever.
"""

from collections.abc import Iterator, Mapping, Set

from budgets.limit import Limit
from config.model import Config
from config.models import Model
from config.problems import Place
from config.soft_checks import budgets_of

Found = Iterator[tuple[Place, str]]


def problems(config: Config, declared: Mapping[str, Set[str]]) -> Found:
    """A part with mistakes of its own may hold the price or the bound, so nothing is said while there is one."""
    sections = {"models": config.models, "pools": config.pools, "tiers": config.tiers, "tenants": config.tenants}
    if any(declared[name] - section.keys() for name, section in sections.items()):
        return
    for model in config.models.values():
        bounds = [limit for limit in _bounds(config, model) if limit.dimension == "money"]
        strict = next((limit for limit in bounds if limit.hardness == "strict"), None)
        if strict is not None and model.price_per_million_tokens is None:
            message = (
                f"the strict budget {strict.label!r} bounds its money; add price_per_million_tokens, which is exact"
            )
            yield ("models", model.name), message
        elif bounds and (free := _unpriced(config, model)):
            message = (
                f"the budget {bounds[0].label!r} bounds its money, but it has no price; add price_per_million_tokens"
            )
            yield ("models", model.name), f"{message}, or price_per_gpu_hour to pools.{free}"


def _bounds(config: Config, model: Model) -> Iterator[Limit]:
    """Every budget that bounds calls of the model, whosever."""
    for tenant in config.tenants.values():
        tier = config.tiers.get(tenant.tier)
        if tier is not None and model.name in config.effective(tenant).models:
            budgets = budgets_of(config, tenant, tier)
            yield from (budget for budget in budgets if budget.model in (None, model.name, *model.aliases))


def _unpriced(config: Config, model: Model) -> str | None:
    """A pool where calls of the model would cost nothing."""
    if model.price_per_million_tokens is not None:
        return None
    pools = config.pools_for(model)
    return next((pool.name for pool in pools if pool.price_per_gpu_hour_nanos is None), None)
