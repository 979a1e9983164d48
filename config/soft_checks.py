"""Checks of soft limits: every name in a step exists, and every step would change something once it is reached.

Rule: a step is told of where it stands, in the tier or in the tenant that has steps of its own.
"""

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple

from budgets.limit import Limit
from config.effective import overridden
from config.model import Config
from config.problems import Place, unknown
from config.soft import Soft
from config.tenants import Tenant
from config.tiers import Context, MaxTokens, Tier

Found = Iterator[tuple[Place, str]]


class Ground(NamedTuple):
    """What steps stand on: the numbers they go below, and the budgets that may reach them."""

    context: Context
    max_tokens: MaxTokens
    priority: int
    budgets: Sequence[Limit]

    @property
    def reachable(self) -> Set[str]:
        return {budget.label for budget in self.budgets if budget.mode == "enforce"}


def problems(config: Config, declared: Set[str]) -> Found:
    """Every step that is wrong. `declared` are the names of all pools in the file, right or not."""
    for tier in config.tiers.values():
        ground = Ground(tier.context, tier.max_tokens, tier.priority, list(_of_tier(config, tier)))
        yield from _steps(config, declared, tier.soft, ground, ("tiers", tier.name, "soft"))
    for tenant in config.tenants.values():
        if (found := config.tiers.get(tenant.tier)) is not None:
            yield from _of_tenant(config, declared, tenant, found)


def _of_tenant(config: Config, declared: Set[str], tenant: Tenant, tier: Tier) -> Found:
    if tenant.soft is not None:
        ground = Ground(
            overridden(tier.context, tenant.context),
            overridden(tier.max_tokens, tenant.max_tokens),
            tier.priority if tenant.priority is None else tenant.priority,
            list(budgets_of(config, tenant, tier)),
        )
        yield from _steps(config, declared, tenant.soft, ground, ("tenants", tenant.name, "soft"))
    if tenant.models is None:
        return
    allowed = {model.name for name in tenant.models if (model := config.model_named(name)) is not None}
    for step in tier.soft if tenant.soft is None else tenant.soft:
        model = config.model_named(step.model or "")
        if model is not None and model.name not in allowed:
            place = ("tenants", tenant.name, "models")
            yield place, f"the soft limit at {step.label} answers from {step.model!r}; add it, or leave that step out"


def budgets_of(config: Config, tenant: Tenant, tier: Tier) -> Iterator[Limit]:
    """Every budget that bounds calls of a tenant."""
    organisation = config.organisations.get(tenant.organisation or "")
    yield from organisation.budgets if organisation is not None else ()
    yield from tier.budgets if tenant.budgets is None else tenant.budgets
    yield from overridden(tier.session, tenant.session).budgets
    for key in tenant.keys:
        yield from key.budgets


def _of_tier(config: Config, tier: Tier) -> Iterator[Limit]:
    """The tier's own and those of all its tenants."""
    yield from tier.budgets
    yield from tier.session.budgets
    for tenant in config.tenants.values():
        if tenant.tier == tier.name:
            yield from budgets_of(config, tenant, tier)


def _steps(config: Config, declared: Set[str], steps: Sequence[Soft], ground: Ground, place: Place) -> Found:
    if steps and not ground.reachable:
        yield place, "is never reached: no budget here refuses anything; add one, or leave the soft limits out"
    for at, step in enumerate(steps):
        if any((step.at, step.of, step.mode) == (other.at, other.of, other.mode) for other in steps[:at]):
            yield (*place, at, "at"), f"two soft limits begin at {step.label}; make them one"
        for where, message in (*_names(config, declared, step, ground), *_effects(config, step, ground)):
            yield (*place, at, *where), message


def _names(config: Config, declared: Set[str], step: Soft, ground: Ground) -> Found:
    for at, name in enumerate(step.of):
        if ground.reachable and name not in ground.reachable:
            yield ("of", at), unknown("budget that refuses", name, ground.reachable)
    if step.pool is not None and step.pool not in declared:
        yield ("pool",), unknown("pool", step.pool, declared)
    if step.model is None:
        return
    if (model := config.model_named(step.model)) is None:
        yield ("model",), unknown("model", step.model, {*config.models})
        return
    pool = config.pools.get(step.pool or "")
    if pool is not None and pool not in config.pools_for(model):
        yield ("pool",), f"{step.pool!r} does not serve {step.model!r}; name one that does, or leave the pool out"
    if bound := next((each.label for each in ground.budgets if each.model in (model.name, *model.aliases)), None):
        message = f"calls that move to {step.model!r} are charged as what they asked for, so the budget {bound!r} "
        yield ("model",), f"{message}of that model would not see them; leave its model out"


def _effects(config: Config, step: Soft, ground: Ground) -> Found:
    limits = (
        ("max_tokens", step.max_tokens, "max_tokens.limit", ground.max_tokens.limit),
        ("context_tokens", step.context_tokens, "context.limit_tokens", ground.context.limit_tokens),
    )
    for field, value, above, limit in limits:
        if value is not None and limit is not None and value >= limit:
            yield (field,), f"{value} must be below {above} ({limit}), or it changes nothing"
    if step.priority is None:
        return
    if step.priority <= ground.priority:
        yield ("priority",), f"{step.priority} must be above the tier's {ground.priority} (lower runs first)"
    elif not any(pool.features.priority for pool in config.pools.values()):
        yield ("priority",), "no pool has features: {priority: true}, so no engine would be told"
