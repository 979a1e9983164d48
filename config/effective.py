"""What holds for one tenant: its tier with its own overrides, resolved once per configuration.

Rule: the context's marks reach the policies here and nowhere else: a window without marks of its own takes those of
the context, and the context's limit is always enforced, last. Of several caps the lowest holds. In shadow all of it is
in shadow.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from budgets.limit import Limit
from config.section import Section
from config.soft import Soft
from config.tenants import Tenant
from config.tiers import Context, MaxTokens, Mode, Session, Tier
from policies.cap_context import CapContext
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.policy import Policy
from policies.summarize_older_turns import SummarizeOlderTurns

S = TypeVar("S", bound=Section)
Window = KeepRecentTurns | KeepRecentTokens
Marked = Window | SummarizeOlderTurns


@dataclass(frozen=True, slots=True)
class Effective:
    """Everything that a request of this tenant is measured by. `models` holds names, aliases resolved.

    `mode` is that of the context's limit; each policy has its own.
    """

    tenant: str
    tier: str
    context: Context
    max_tokens: MaxTokens
    session: Session
    budgets: tuple[Limit, ...]
    policies: tuple[Policy, ...]
    priority: int
    models: frozenset[str]
    organisation: str | None = None
    organisation_budgets: tuple[Limit, ...] = ()
    usage_records: int = 0
    mode: Mode = "enforce"
    soft: tuple[Soft, ...] = ()
    ietf_headers: bool = False


def resolve(tenant: Tenant, tier: Tier, models: frozenset[str], shared: tuple[Limit, ...] = ()) -> Effective:
    """The tenant in its tier; `models` are those it may use, `shared` the budgets of its organisation."""
    context = overridden(tier.context, tenant.context)
    mode = tier.mode if tenant.mode is None else tenant.mode
    policies = tier.policies if tenant.policies is None else tenant.policies
    session = overridden(tier.session, tenant.session)
    return Effective(
        tenant=tenant.name,
        tier=tier.name,
        context=context,
        max_tokens=overridden(tier.max_tokens, tenant.max_tokens),
        session=session,
        budgets=tier.budgets if tenant.budgets is None else tenant.budgets,
        policies=tuple(outliving(within(policies, context, mode), session)),
        priority=tier.priority if tenant.priority is None else tenant.priority,
        models=models,
        organisation=tenant.organisation,
        organisation_budgets=shared,
        usage_records=tier.usage_records if tenant.usage_records is None else tenant.usage_records,
        mode=mode,
        soft=tier.soft if tenant.soft is None else tenant.soft,
        ietf_headers=tier.ietf_headers if tenant.ietf_headers is None else tenant.ietf_headers,
    )


def overridden(base: S, override: S | None) -> S:
    """`base` with every field that the override sets."""
    if override is None:
        return base
    return base.model_copy(update={field: getattr(override, field) for field in override.model_fields_set})


def within(policies: Sequence[Policy], context: Context, mode: Mode = "enforce") -> Iterator[Policy]:
    """The policies, told the context's marks and limit."""
    for policy in policies:
        marked = _marked(policy, context) if isinstance(policy, Marked) else policy
        yield marked if mode == "enforce" else marked.model_copy(update={"mode": mode})
    if context.limit_tokens is not None:
        yield CapContext(limit_tokens=context.limit_tokens, mode=mode)


def outliving(policies: Iterable[Policy], session: Session) -> Iterator[Policy]:
    """The policies, told that a session leaves a record when it is forgotten; by default from where one is written."""
    for policy in policies:
        if isinstance(policy, SummarizeOlderTurns) and session.expire == "summarize" and policy.by == "model":
            high = policy.high_water_tokens
            mark = policy.idle_at_tokens or policy.summarize_at_tokens or (high and high * 4 // 5)
            yield policy.model_copy(update={"idle_at_tokens": mark})
        else:
            yield policy


def _marked(window: Marked, context: Context) -> Marked:
    if window.high_water_tokens is not None or context.high_water_tokens is None:
        return window
    if isinstance(window, SummarizeOlderTurns) and window.low_water_tokens is not None:
        return window.model_copy(update={"high_water_tokens": context.high_water_tokens})
    marks = {"high_water_tokens": context.high_water_tokens, "low_water_tokens": context.low_water_tokens}
    return window.model_copy(update=marks)


def softened(may: Effective, soft: Soft) -> Effective:
    """What holds once a soft limit is reached; a step never gives more than there was."""
    limit = may.max_tokens
    if soft.max_tokens is not None:
        lower = soft.max_tokens if limit.limit is None else min(soft.max_tokens, limit.limit)
        default = None if limit.default is None else min(limit.default, lower)
        limit = MaxTokens(default=default, limit=lower)
    return replace(
        may,
        max_tokens=limit,
        context=_least(may.context, soft.context_tokens),
        policies=may.policies if soft.context_tokens is None else tuple(_tightened(may, soft.context_tokens)),
        priority=may.priority if soft.priority is None else max(soft.priority, may.priority),
        soft=(),
    )


def _least(context: Context, limit_tokens: int | None) -> Context:
    if limit_tokens is None or (context.limit_tokens or limit_tokens) < limit_tokens:
        return context
    return context.model_copy(update={"limit_tokens": limit_tokens})


def _tightened(may: Effective, limit_tokens: int) -> Iterator[Policy]:
    """Windows move in steps below the new limit as they did below the old one, or every turn would move them."""
    for policy in may.policies:
        if isinstance(policy, Window):
            high = min(limit_tokens, policy.high_water_tokens or limit_tokens)
            low = min(high // 2, policy.low_water_tokens or high)
            yield policy.model_copy(update={"high_water_tokens": high, "low_water_tokens": max(1, low)})
        elif isinstance(policy, SummarizeOlderTurns):
            yield policy.lowered(limit_tokens)
        else:
            yield policy
    yield CapContext(limit_tokens=limit_tokens, mode=may.mode)
