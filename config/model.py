"""The whole file as one immutable object, and the questions the gateway asks it.

Rule: an object of this class that came from `config.load` has passed the cross checks, so every name in it resolves.
"""

from collections.abc import Iterable
from functools import cached_property
from types import MappingProxyType
from typing import Annotated

from pydantic import BeforeValidator, Field

from config.effective import Effective, resolve
from config.models import Model
from config.pools import Pool
from config.routing import Routing
from config.section import ModelName, Name, ReadOnly, Section, named
from config.tenants import Organisation, Tenant
from config.tiers import Budgets, Tier


class Config(Section):
    """The configuration file."""

    models: Annotated[ReadOnly[ModelName, Model], BeforeValidator(named)]
    pools: Annotated[ReadOnly[Name, Pool], BeforeValidator(named)]
    routing: Routing = Routing()
    tiers: Annotated[ReadOnly[Name, Tier], BeforeValidator(named)]
    organisations: Annotated[ReadOnly[Name, Organisation], BeforeValidator(named)] = Field(
        default_factory=lambda: MappingProxyType({})
    )
    tenants: Annotated[ReadOnly[Name, Tenant], BeforeValidator(named)]

    def model_named(self, name: str) -> Model | None:
        """The model of this name or alias."""
        return self._models_by_name.get(name)

    def tier_of(self, tenant: Tenant) -> Tier:
        """The tenant's tier, overrides aside."""
        return self.tiers[tenant.tier]

    def pools_for(self, model: Model) -> tuple[Pool, ...]:
        """Every pool that serves the model, in the order of the file."""
        return self._pools_by_model.get(model.name, ())

    def effective(self, tenant: Tenant) -> Effective:
        """What holds for a tenant of this configuration."""
        return self._effective[tenant.name]

    def resolved(self, tenant: Tenant) -> Effective:
        """What holds for a tenant that may come from elsewhere; its tier and its organisation are of this file."""
        return resolve(tenant, self.tier_of(tenant), self._allowed(tenant), self._shared(tenant))

    @cached_property
    def _models_by_name(self) -> dict[str, Model]:
        aliases = {alias: model for model in self.models.values() for alias in model.aliases}
        return {**aliases, **self.models}

    @cached_property
    def _pools_by_model(self) -> dict[str, tuple[Pool, ...]]:
        served = {pool.name: self._resolved(pool.models) for pool in self.pools.values()}
        return {
            model: tuple(pool for pool in self.pools.values() if model in served[pool.name]) for model in self.models
        }

    @cached_property
    def _effective(self) -> dict[str, Effective]:
        return {tenant.name: self.resolved(tenant) for tenant in self.tenants.values()}

    def _shared(self, tenant: Tenant) -> Budgets:
        """The budgets of the tenant's organisation."""
        return () if tenant.organisation is None else self.organisations[tenant.organisation].budgets

    def _allowed(self, tenant: Tenant) -> frozenset[str]:
        return self._resolved(self.models if tenant.models is None else tenant.models)

    def _resolved(self, names: Iterable[str]) -> frozenset[str]:
        return frozenset(model.name for name in names if (model := self.model_named(name)))
