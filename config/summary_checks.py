"""Checks of summaries: who writes them exists, their marks fit the tier's, and nothing else of the tier forbids them.

Rule: told of the tier, or of the tenant that has policies, marks or limits of its own.
"""

from collections.abc import Iterator, Mapping, Sequence, Set

from pydantic import ValidationError

from config.effective import overridden, within
from config.model import Config
from config.problems import Place, unknown
from config.tenants import Tenant
from config.tiers import Context, MaxTokens, Session, Tier
from policies.pin import Pin
from policies.policy import Policy
from policies.summarize_older_turns import SummarizeOlderTurns

Found = Iterator[tuple[Place, str]]
Declared = Mapping[str, Set[str]]
EXPIRE = ("session", "expire")


def problems(config: Config, declared: Declared) -> Found:
    """Every summary that could never be made or used as it is written."""
    for tier in config.tiers.values():
        for place, message in _of_tier(config, declared, tier):
            yield ("tiers", tier.name, *place), message
    for tenant in config.tenants.values():
        if (found := config.tiers.get(tenant.tier)) is not None:
            yield from _of_tenant(config, declared, tenant, found)


def _of_tier(config: Config, declared: Declared, tier: Tier) -> Found:
    return _of(config, declared, tier.policies, tier.context, tier.max_tokens, tier.session)


def _of_tenant(config: Config, declared: Declared, tenant: Tenant, tier: Tier) -> Found:
    told = dict(_of_tier(config, declared, tier))
    found = _of(
        config,
        declared,
        tier.policies if tenant.policies is None else tenant.policies,
        overridden(tier.context, tenant.context),
        overridden(tier.max_tokens, tenant.max_tokens),
        overridden(tier.session, tenant.session),
    )
    for place, message in found:
        if told.get(place) != message:
            own = place[0] != "policies" or tenant.policies is not None
            yield ("tenants", tenant.name, *(place if own else ())), message


def _of(
    config: Config,
    declared: Declared,
    policies: Sequence[Policy],
    context: Context,
    max_tokens: MaxTokens,
    session: Session,
) -> Found:
    marked = list(within(policies, context))[: len(policies)]
    for at, policy in enumerate(marked):
        if isinstance(policy, SummarizeOlderTurns):
            place = ("policies", at)
            yield from _names(config, declared, policy, place)
            yield from _numbers(policy, context, max_tokens, place)
            yield from _pinned(policies, place)
    written = [policy for policy in policies if isinstance(policy, SummarizeOlderTurns) and policy.by == "model"]
    if session.expire == "summarize" and not written:
        yield EXPIRE, "needs {kind: summarize_older_turns} among the policies, written by a model"
    if session.expire == "summarize":
        for at, policy in enumerate(marked):
            marks = getattr(policy, "idle_at_tokens", 0), getattr(policy, "summarize_at_tokens", 0)
            if isinstance(policy, SummarizeOlderTurns) and not any((*marks, policy.high_water_tokens)):
                yield ("policies", at), "with session: {expire: summarize} it needs idle_at_tokens or another mark"
    else:
        for at, policy in enumerate(policies):
            if isinstance(policy, SummarizeOlderTurns) and policy.idle_at_tokens is not None:
                yield ("policies", at, "idle_at_tokens"), "has no effect without session: {expire: summarize}"


def _names(config: Config, declared: Declared, policy: SummarizeOlderTurns, place: Place) -> Found:
    model = config.model_named(policy.model or "")
    if policy.model is not None and model is None and policy.model not in declared["models"]:
        yield (*place, "model"), unknown("model", policy.model, declared["models"])
    if policy.pool is None:
        return
    if policy.pool not in declared["pools"]:
        yield (*place, "pool"), unknown("pool", policy.pool, declared["pools"])
    elif model is not None and policy.pool in config.pools:
        serving = [pool.name for pool in config.pools_for(model)]
        if policy.pool not in serving:
            yield (*place, "pool"), f"it does not serve {policy.model!r}; that is served by: {', '.join(serving)}"


def _numbers(policy: SummarizeOlderTurns, context: Context, max_tokens: MaxTokens, place: Place) -> Found:
    try:
        SummarizeOlderTurns.model_validate(policy.model_dump())
    except ValidationError as fault:
        message = fault.errors()[0]["msg"].removeprefix("Value error, ")
        yield place, f"with the marks of context: {message}"
    high, limit = policy.high_water_tokens, context.limit_tokens
    if high is not None and limit is not None and high > limit:
        yield (*place, "high_water_tokens"), f"{high} must not be above context.limit_tokens ({limit})"
    if policy.by == "model" and policy.model is None and (most := max_tokens.limit) and policy.max_tokens > most:
        message = f"{policy.max_tokens} must not be above max_tokens.limit ({most}): the record would be cut off"
        yield (*place, "max_tokens"), message


def _pinned(policies: Sequence[Policy], place: Place) -> Found:
    """The record stands behind the task, which nothing may touch where it is pinned."""
    for policy in policies:
        if isinstance(policy, Pin) and policy.mode == "enforce" and (policy.first_turns or "user" in policy.roles):
            why = "first_turns" if policy.first_turns else "roles: [user]"
            yield place, f"has no effect with {{kind: pin, {why}}}, which pins the task; leave one of them out"
