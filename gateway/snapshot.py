"""One configuration in force, with all that was built from it.

Rule: immutable and swapped as a whole; a request keeps the one it began with.
"""

from dataclasses import dataclass

from config.model import Config
from config.models import Model
from gateway.dispatch import Dispatch
from gateway.errors import ModelNotFound
from gateway.pools import ServedPool
from gateway.tenants import Caller, Tenants


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`created`: when it came into force, in seconds of wall time."""

    config: Config
    tenants: Tenants
    pools: dict[str, ServedPool]
    dispatch: Dispatch
    created: int

    def allows(self, caller: Caller, name: str) -> bool:
        """Whether this caller may use the model of this name or alias."""
        model = self.config.model_named(name)
        return model is not None and model.name in caller.may.models

    def model(self, caller: Caller, name: str) -> Model:
        """The model, its alias resolved. Raises `ModelNotFound`, the same whether it is unknown or not allowed."""
        model = self.config.model_named(name)
        if model is None or model.name not in caller.may.models:
            raise ModelNotFound(f"The model `{name[:128]}` does not exist or is not open to you.", param="model")
        return model

    def pools_of(self, model: Model) -> list[ServedPool]:
        return [self.pools[pool.name] for pool in self.config.pools_for(model)]

    def context_limit(self, model: Model) -> int | None:
        """Tokens of prompt and reply together: as configured, else what every engine of the model can take."""
        if model.context_limit_tokens is not None:
            return model.context_limit_tokens
        reported = (pool.pool.max_model_len for pool in self.pools_of(model))
        return min((limit for limit in reported if limit is not None), default=None)
