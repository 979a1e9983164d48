"""Checks of numbers that belong together: marks below limits, defaults below maxima, in tiers and after overrides.

Rule: a number that would have no effect is a mistake too.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from config.effective import Marked, overridden
from config.model import Config
from config.problems import Place
from config.soft_checks import budgets_of
from config.tenants import Tenant
from config.tiers import Context, MaxTokens, Session, Tier
from policies.policy import KeepsOriginals, Policy

Found = Iterator[tuple[Place, str]]


def problems(config: Config) -> Found:
    """Every pair of numbers that contradict each other. A tenant is told only of what its own overrides bring about."""
    of_tiers = {tier.name: dict(_of_tier(tier)) for tier in config.tiers.values()}
    for name, found in of_tiers.items():
        yield from ((("tiers", name, *place), message) for place, message in found.items())
    for tenant in config.tenants.values():
        if tier := config.tiers.get(tenant.tier):
            for place, message in _of_tenant(tenant, tier):
                if of_tiers[tier.name].get(place) != message:
                    yield ("tenants", tenant.name, *place), message
    yield from _strict(config)


def _strict(config: Config) -> Found:
    """A strict limit of what is generated reserves the most there can be, so there must be a most.

    Told of a tenant, whoever wrote the limit and whoever left out the bound.
    """
    for tenant in config.tenants.values():
        if (tier := config.tiers.get(tenant.tier)) is None:
            continue
        bound = overridden(tier.max_tokens, tenant.max_tokens)
        strict = next((budget for budget in budgets_of(config, tenant, tier) if budget.hardness == "strict"), None)
        if strict is not None and bound.default is None and bound.limit is None:
            place = ("tenants", tenant.name)
            yield place, f"the strict budget {strict.label!r} needs max_tokens, with a default or a limit"


def _of_tier(tier: Tier) -> Found:
    yield from _context(tier.context, tier.policies)
    yield from _retrieval(tier.context, tier.policies)
    yield from _max_tokens(tier.max_tokens)
    yield from _session(tier.session)


def _of_tenant(tenant: Tenant, tier: Tier) -> Found:
    policies = tier.policies if tenant.policies is None else tenant.policies
    yield from _context(overridden(tier.context, tenant.context), policies)
    yield from _retrieval(overridden(tier.context, tenant.context), policies)
    yield from _max_tokens(overridden(tier.max_tokens, tenant.max_tokens))
    yield from _session(overridden(tier.session, tenant.session))


def _context(context: Context, policies: Sequence[Policy]) -> Found:
    low, high, limit = context.low_water_tokens, context.high_water_tokens, context.limit_tokens
    yield from _ascending("context", low_water_tokens=low, high_water_tokens=high, limit_tokens=limit)
    if low is not None and high is None:
        yield ("context", "low_water_tokens"), "needs high_water_tokens, the mark at which the window is cut"
    if high is not None and not any(isinstance(policy, Marked) for policy in policies):
        place = ("context", "high_water_tokens")
        yield place, "has no effect without a window; add {kind: keep_recent_turns} to the policies"


def _retrieval(context: Context, policies: Sequence[Policy]) -> Found:
    if context.retrieval_tool and not any(isinstance(p, KeepsOriginals) and p.keep_original_seconds for p in policies):
        place = ("context", "retrieval_tool")
        yield place, "has no effect where no original is kept; add keep_original: 24h to a trim_tool_output policy"


def _max_tokens(max_tokens: MaxTokens) -> Found:
    return _ascending("max_tokens", default=max_tokens.default, limit=max_tokens.limit)


def _session(session: Session) -> Found:
    yield from _ascending("session", ttl=session.ttl_seconds, absolute_ttl=session.absolute_ttl_seconds)
    yield from _identity(session)
    if session.history == "stored":
        yield from _ascending("session", history_bytes=session.history_bytes, stored_bytes=session.stored_bytes)


def _identity(session: Session) -> Found:
    place = ("session", "identity")
    twice = next((source for source in session.identity if session.identity.count(source) > 1), None)
    if twice is not None:
        yield place, f"{twice} is listed twice; list it once"
    if session.history == "stored" and session.identity[:1] != ("x-session-id",):
        yield place, "must begin with x-session-id where histories are stored: it names the history; put it first"


def _ascending(section: str, **values: float | None) -> Found:
    """None may be above the next one that is given; a window's low mark is below, or it would move with every turn."""
    given = [(field, value) for field, value in values.items() if value is not None]
    for (lower, value), (upper, limit) in pairwise(given):
        strict = lower == "low_water_tokens"
        if value > limit or (strict and value == limit):
            relation = "must be below" if strict else "must not be above"
            yield (section, lower), f"{_plain(value)} {relation} {upper} ({_plain(limit)}); lower it or raise {upper}"


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else str(value)
