"""Checks of names across the file: everything that is named exists, and no name means two things.

Rule: every check looks at everything and stops at nothing, so that one run names all there is to mend.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence, Set

from config.model import Config
from config.problems import Place, unknown
from config.tiers import Budget

Found = Iterator[tuple[Place, str]]
Declared = Mapping[str, Set[str]]
"""Names that stand in the file per section, those of parts with mistakes of their own included."""


def problems(config: Config, declared: Declared) -> Found:
    """Every name that is wrong in a configuration whose single parts are right."""
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
            yield (*place, at), unknown("model", name, {*declared["models"], *_model_aliases(config)})


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
            yield ("tenants", tenant.name, "tier"), unknown("tier", tenant.tier, declared["tiers"])


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


def _organisations_exist(config: Config, declared: Declared) -> Found:
    for tenant in config.tenants.values():
        name = tenant.organisation
        if name is not None and name not in declared["organisations"]:
            place = ("tenants", tenant.name, "organisation")
            yield place, unknown("organisation", name, declared["organisations"])


def _budget_lists(config: Config) -> Iterator[tuple[Place, Sequence[Budget]]]:
    """Every list of budgets in the file; what is in one of them is one owner's."""
    for section, entries in (("tiers", config.tiers), ("tenants", config.tenants)):
        for entry in entries.values():
            yield (section, entry.name, "budgets"), entry.budgets or ()
            if entry.session is not None:
                yield (section, entry.name, "session", "budgets"), entry.session.budgets
    for organisation in config.organisations.values():
        yield ("organisations", organisation.name, "budgets"), organisation.budgets
    for tenant in config.tenants.values():
        for at, key in enumerate(tenant.keys):
            yield ("tenants", tenant.name, "keys", at, "budgets"), key.budgets


def _budget_names(config: Config, _: Declared) -> Found:
    """Two budgets with one label would share a bucket."""
    for place, budgets in _budget_lists(config):
        labels = [budget.label for budget in budgets]
        for at, label in enumerate(labels):
            if label in labels[:at]:
                yield (*place, at), f"two budgets are called {label!r}; give one of them a name"


def _budget_models(config: Config, declared: Declared) -> Found:
    for place, budgets in _budget_lists(config):
        for at, budget in enumerate(budgets):
            name = budget.model
            if name is not None and config.model_named(name) is None and name not in declared["models"]:
                known = {*declared["models"], *_model_aliases(config)}
                yield (*place, at, "model"), unknown("model", name, known)


CHECKS: tuple[Callable[[Config, Declared], Found], ...] = (
    _aliases,
    _pool_models,
    _tenant_models,
    _served_models,
    _tiers_exist,
    _one_tenant_a_key,
    _tenant_key_names,
    _organisations_exist,
    _budget_names,
    _budget_models,
)
