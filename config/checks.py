"""Checks across the whole file: what no single part can know.

Rule: every check looks at everything and stops at nothing, so that one run names all there is to mend.
"""

from collections.abc import Callable, Iterator, Mapping, Set
from difflib import get_close_matches
from itertools import pairwise

from config.effective import overridden
from config.model import Config
from config.problems import Place
from config.tiers import Context, MaxTokens, Session
from policies.keep_recent_turns import KeepRecentTurns

Found = Iterator[tuple[Place, str]]
Declared = Mapping[str, Set[str]]
"""Names that stand in the file per section, those of parts with mistakes of their own included."""


def problems(config: Config, declared: Declared) -> Found:
    """Everything wrong with a configuration whose single parts are right."""
    for check in CHECKS:
        yield from check(config, declared)


def _aliases(config: Config, _: Declared) -> Found:
    taken = {name: name for name in config.models}
    for model in config.models.values():
        for at, alias in enumerate(model.aliases):
            other = taken.setdefault(alias, model.name)
            place = ("models", model.name, "aliases", at)
            if other == alias:
                yield place, f"{alias!r} is the name of a model; choose another alias"
            elif other != model.name:
                yield place, f"{alias!r} is an alias of {other!r} already; remove one"


def _pool_models(config: Config, declared: Declared) -> Found:
    for pool in config.pools.values():
        yield from _known_models(config, declared, pool.models, ("pools", pool.name, "models"))


def _tenant_models(config: Config, declared: Declared) -> Found:
    for tenant in config.tenants.values():
        yield from _known_models(config, declared, tenant.models or (), ("tenants", tenant.name, "models"))


def _known_models(config: Config, declared: Declared, names: tuple[str, ...], place: Place) -> Found:
    for at, name in enumerate(names):
        if config.model_named(name) is None and name not in declared["models"]:
            yield (*place, at), _unknown("model", name, {*declared["models"], *_model_aliases(config)})


def _model_aliases(config: Config) -> Set[str]:
    return {alias for model in config.models.values() for alias in model.aliases}


def _served_models(config: Config, declared: Declared) -> Found:
    """A pool with mistakes may be the one that serves the model, so nothing is said while there is one."""
    if declared["pools"] - config.pools.keys():
        return
    for model in config.models.values():
        if not config.pools_for(model):
            yield ("models", model.name), "no pool serves it; add its name to the models of a pool"


def _tiers_exist(config: Config, declared: Declared) -> Found:
    for tenant in config.tenants.values():
        if tenant.tier not in declared["tiers"]:
            yield ("tenants", tenant.name, "tier"), _unknown("tier", tenant.tier, declared["tiers"])


def _unknown(kind: str, name: str, known: Set[str]) -> str:
    if near := get_close_matches(name, sorted(known), n=1, cutoff=0.6):
        return f"unknown {kind} {name!r}; did you mean {near[0]!r}?"
    return f"unknown {kind} {name!r}; known: {', '.join(sorted(known)) or 'none'}"


def _one_tenant_a_key(config: Config, _: Declared) -> Found:
    owners: dict[str, str] = {}
    for tenant in config.tenants.values():
        for at, key in enumerate(tenant.keys):
            place = ("tenants", tenant.name, "keys", at, "sha256")
            owner = owners.setdefault(key.sha256, f"{tenant.name}.{key.name}")
            if owner != f"{tenant.name}.{key.name}":
                yield place, f"the key {key.name!r} is the same as {owner!r}; a key belongs to one tenant, once"


def _tenant_key_names(config: Config, _: Declared) -> Found:
    for tenant in config.tenants.values():
        names = [key.name for key in tenant.keys]
        for at, name in enumerate(names):
            if name in names[:at]:
                yield ("tenants", tenant.name, "keys", at, "name"), f"two keys are named {name!r}; rename one"


def _budget_names(config: Config, _: Declared) -> Found:
    """Two budgets with one label would share a bucket."""
    for section, entries in (("tiers", config.tiers), ("tenants", config.tenants)):
        for entry in entries.values():
            labels = [budget.label for budget in entry.budgets or ()]
            for at, label in enumerate(labels):
                if label in labels[:at]:
                    place = (section, entry.name, "budgets", at)
                    yield place, f"two budgets are called {label!r}; give one of them a name"


def _tier_numbers(config: Config, _: Declared) -> Found:
    for tier in config.tiers.values():
        yield from _numbers(("tiers", tier.name), tier.context, tier.max_tokens, tier.session)


def _tenant_numbers(config: Config, _: Declared) -> Found:
    """Only for tenants that override something, and only what is wrong after the override."""
    for tenant in config.tenants.values():
        tier = config.tiers.get(tenant.tier)
        if tier is None or (tenant.context, tenant.max_tokens, tenant.session) == (None, None, None):
            continue
        of_the_tier = {place for place, _ in _numbers((), tier.context, tier.max_tokens, tier.session)}
        found = _numbers(
            (),
            overridden(tier.context, tenant.context),
            overridden(tier.max_tokens, tenant.max_tokens),
            overridden(tier.session, tenant.session),
        )
        for place, text in found:
            if place not in of_the_tier:
                yield ("tenants", tenant.name, *place), text


def _numbers(place: Place, context: Context, max_tokens: MaxTokens, session: Session) -> Found:
    yield from _ascending(
        (*place, "context"),
        low_water_tokens=context.low_water_tokens,
        high_water_tokens=context.high_water_tokens,
        limit_tokens=context.limit_tokens,
    )
    if context.low_water_tokens is not None and context.high_water_tokens is None:
        yield (*place, "context", "low_water_tokens"), "needs high_water_tokens, the mark at which the window is cut"
    yield from _ascending((*place, "max_tokens"), default=max_tokens.default, limit=max_tokens.limit)
    yield from _ascending((*place, "session"), ttl=session.ttl_seconds, absolute_ttl=session.absolute_ttl_seconds)


def _ascending(place: Place, **values: float | None) -> Found:
    """None of these may be above the next one given; a window's marks must differ, or it would move with every turn."""
    given = [(field, value) for field, value in values.items() if value is not None]
    for (lower, value), (upper, limit) in pairwise(given):
        strict = lower == "low_water_tokens"
        if value > limit or (strict and value == limit):
            relation = "must be below" if strict else "must not be above"
            yield (*place, lower), f"{_plain(value)} {relation} {upper} ({_plain(limit)}); lower it or raise {upper}"


def _plain(value: float) -> str:
    return f"{value:.0f}" if value == int(value) else str(value)


def _marks_are_used(config: Config, _: Declared) -> Found:
    for tier in config.tiers.values():
        window = any(isinstance(policy, KeepRecentTurns) for policy in tier.policies)
        if tier.context.high_water_tokens is not None and not window:
            place = ("tiers", tier.name, "context", "high_water_tokens")
            yield place, "has no effect without a window; add {kind: keep_recent_turns} to the tier's policies"


CHECKS: tuple[Callable[[Config, Declared], Found], ...] = (
    _aliases,
    _pool_models,
    _tenant_models,
    _served_models,
    _tiers_exist,
    _one_tenant_a_key,
    _tenant_key_names,
    _budget_names,
    _tier_numbers,
    _tenant_numbers,
    _marks_are_used,
)
