"""One configuration in force, with all that was built from it.

Rule: swapped as a whole; a request keeps the one it began with.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from config.effective import softened
from config.model import Config
from config.models import Model
from config.soft import Soft
from gateway.counting import Counter
from gateway.degrading import Stage
from gateway.dispatch import Dispatch
from gateway.errors import ModelNotFound
from gateway.kept import Kept
from gateway.pacing import Pace, Schedule
from gateway.pools import ServedPool
from gateway.recent import Memory
from gateway.service import Service
from gateway.tenants import Caller, Tenants
from policies.summarize_older_turns import SummarizeOlderTurns


class Snapshot:
    """`counters` are by encoding; `created` is when it came into force, in whole seconds of wall time."""

    def __init__(
        self,
        config: Config,
        tenants: Tenants,
        pools: Mapping[str, ServedPool],
        counters: Mapping[str, Counter],
        dispatch: Dispatch,
        created: int,
        kept: Kept | None = None,
    ) -> None:
        self.config = config
        self.prefill_heavy_above = config.routing.prefill_heavy_above
        self.tenants = tenants
        self.pools = pools
        self.counters = counters
        self.dispatch = dispatch
        self.created = created
        self.kept = kept or Kept()
        self._services: dict[tuple[str, str, str], Service] = {}
        self._schedules: dict[str, Schedule] = {}

    def service(self, caller: Caller, name: str) -> Service:
        """What the caller gets of the model of this name or alias.

        Raises `ModelNotFound`, the same whether the model is unknown or not open to the caller.
        """
        service = self._services.get((caller.tenant, caller.key, name))
        if service is None or service.caller is not caller:  # what the caller may has changed meanwhile
            service = self._services[caller.tenant, caller.key, name] = self._made(caller, name)
        return service

    def writer(self, service: Service, policy: SummarizeOlderTurns) -> Service:
        """Who writes records for calls of `service`: the policy's model in its pool, open to the caller or not."""
        key = (service.caller.tenant, service.caller.key, f"{service.model.name} {policy.model} {policy.pool}")
        writer = self._services.get(key)
        if writer is None or writer.caller is not service.caller:
            model = self.config.model_named(policy.model or "") or service.model
            pools = [pool for pool in self._pools_of(model) if policy.pool in (None, pool.name)]
            writer = Service(service.caller, model, pools, self.counters[model.encoding], kept=self.kept)
            self._services[key] = writer
        return writer

    def renew(self, tenants: Sequence[str]) -> None:
        """Take up what the store says of these tenants and organisations by now."""
        changed = frozenset(self.tenants.renew(tenants))
        for key in [key for key in self._services if key[0] in changed]:
            del self._services[key]

    def memories(self) -> Iterator[tuple[str, Memory]]:
        """What its services remember, by name; of the same name there may be several."""
        for counter in self.counters.values():
            yield "token_counts", counter.known
            yield "marks", counter.marked
        yield "sound_arguments", self.kept.sound
        yield "trimmed_characters", self.kept.trimmed
        yield "facts_characters", self.kept.facts
        yield "session_limits", self.kept.scopes
        yield "said_characters", self.kept.said
        for pool in self.pools.values():
            yield from (("predicted_seconds", pace) for pace in pool.paces())

    def names(self, caller: Caller) -> list[str]:
        """Every name and alias under which the caller may use a model."""
        allowed = (model for model in self.config.models.values() if model.name in caller.may.models)
        return [name for model in allowed for name in (model.name, *model.aliases)]

    def _made(self, caller: Caller, name: str) -> Service:
        model = self.config.model_named(name)
        if model is None or model.name not in caller.may.models:
            raise ModelNotFound(f"The model `{name[:128]}` does not exist or is not open to you.", param="model")
        made = Service(caller, model, self._pools_of(model), self.counters[model.encoding], kept=self.kept)
        made.stages = tuple([self._stage(caller, model, soft) for soft in caller.may.soft])
        made.unpriced = made.unpriced or next((s.service.unpriced for s in made.stages if s.service.unpriced), None)
        return made

    def _stage(self, caller: Caller, asked_for: Model, soft: Soft) -> Stage:
        """What the caller gets of the model from a soft limit on."""
        model = self.config.model_named(soft.model or "") or asked_for
        less = replace(caller, may=softened(caller.may, soft))
        counter = self.counters[model.encoding]
        service = Service(less, model, self._pools_of(model), counter, asked_for, soft.pool, self.kept)
        rate = soft.tokens_per_second
        schedule = self._schedules.setdefault(caller.tenant, Schedule()) if rate is not None else None
        return Stage(soft, service, None if rate is None or schedule is None else Pace(schedule, rate))

    def _pools_of(self, model: Model) -> list[ServedPool]:
        return [self.pools[pool.name] for pool in self.config.pools_for(model)]
