"""What one caller gets of one model: everything of the configuration that a call asks, worked out once.

Rule: built when a caller first uses a model under a configuration, and read by every call after it; nothing here
changes but the context limit, which the engines may report later, and whether enough is known of what it takes.
"""

import hashlib
from collections.abc import Sequence
from operator import ge, le
from typing import TYPE_CHECKING, Final

from budgets.estimate import Bounds
from budgets.ledger import Scope
from budgets.limit import GROWING
from config.models import Model
from gateway.arguments import SoundArguments
from gateway.costs import Costs
from gateway.counting import Counter
from gateway.kept import Kept
from gateway.lineage import stripping
from gateway.pools import ServedPool
from gateway.rendered import Rendered
from gateway.scoping import bounding, scope_of, session_limits, session_owner
from gateway.sessions import SessionLimits
from gateway.tenants import Caller
from gateway.texts import Place
from gateway.tier_policies import capped, goes_by_age, is_of_facts, keep_seconds, sized, summarizing
from policies.cap_context import CapContext
from policies.keeping import NOTHING, Keeping
from policies.policy import Policy
from policies.repair import Repair
from policies.sizes import may_act
from policies.strip import Strip

if TYPE_CHECKING:
    from gateway.degrading import Stage

Size = tuple[int, int, int, int]
"""Bytes of the prompt, bytes of its largest tool output, messages, the weight of the reply asked for."""
COUNTED: Final = ("requests", "concurrent_calls")
"""Dimensions in which a call needs one, whatever its size."""
NOTHING_QUIET: Final = (-1, -1, -1, -1, -1.0)


class Service:
    """One caller and one model. `paces` go with `pools`, one by one. `prices_breaks`: what a broken prefix costs has a
    say in the tier's edits.

    `asked_for` is the model whose budgets bind, if that is another one; `first_pool` goes before all others. `stages`
    are what the caller gets instead once its budgets run low. `unpriced`: that of the costs, or of a stage. `kept` is
    what all services remember in.
    """

    __slots__ = (
        "_limit_tokens",
        "_own",
        "_policies",
        "_quiet_up_to",
        "_scopes",
        "_session_budgets",
        "_sized",
        "ages",
        "announces",
        "arguments",
        "bounds",
        "caller",
        "caps_replies",
        "costs",
        "counter",
        "elastic",
        "first_pool",
        "grows",
        "identity",
        "keep_seconds",
        "keeping",
        "key",
        "looks",
        "model",
        "name",
        "paces",
        "place",
        "pools",
        "prices_breaks",
        "records_facts",
        "rendered",
        "scope",
        "session_limits",
        "stages",
        "strict",
        "strip",
        "summary",
        "takes_broken_arguments",
        "unpriced",
        "upstream_name",
        "well_known",
    )

    def __init__(
        self,
        caller: Caller,
        model: Model,
        pools: Sequence[ServedPool],
        counter: Counter,
        asked_for: Model | None = None,
        first_pool: str | None = None,
        kept: Kept | None = None,
    ) -> None:
        self.caller = caller
        self.name, self.upstream_name = model.name, model.upstream_name
        self.key = (caller.tenant, self.name)
        self.prices_breaks = caller.may.context.steps != "strict" and bool(pools)
        self.bounds = Bounds(prompt_tokens=caller.may.context.limit_tokens if caller.may.mode == "enforce" else None)
        self.model = model
        self.pools = tuple(pools)
        self.paces = tuple([pool.pace(model.geometry) for pool in pools])
        self.counter = counter
        self.first_pool = first_pool
        self.stages: Sequence[Stage] = ()
        self.scope = scope_of(caller, asked_for or model)
        session = caller.may.session
        self.identity = session.identity
        kept = kept or Kept()
        self._session_budgets = bounding(session.budgets, asked_for or model)
        self._scopes = kept.scopes
        self._own = object()  # by which its own are found among those of all services
        self.session_limits = SessionLimits(
            session.ttl_seconds, session.absolute_ttl_seconds, session.max_sessions, session.stored_bytes
        )
        limits = (*self.scope.limits, *self._session_budgets)
        self.costs = Costs(model, self.pools, self.paces, limits)
        self.unpriced = self.costs.unpriced
        self.strict = any(limit.hardness == "strict" for limit in limits)
        self.elastic = any(limit.hardness == "elastic" and limit.dimension not in COUNTED for limit in limits)
        self.grows = any(limit.hardness == "elastic" and limit.dimension in GROWING for limit in limits)
        self.caps_replies = any(isinstance(p, CapContext) and p.reply != "apart" for p in caller.may.policies)
        self.strip = stripping(caller.may.policies)
        self.summary = summarizing(caller.may.policies)
        self.records_facts = any(map(is_of_facts, caller.may.policies))
        self.place = Place(caller.tenant, caller.may.organisation)
        self.keeping = keeping_for(caller)
        self.keep_seconds = keep_seconds(caller.may.policies)
        self.announces = caller.may.context.retrieval_tool and self.keep_seconds > 0
        self._quiet_up_to: tuple[int, int, int, int, float] = NOTHING_QUIET
        self._limit_tokens: int | None = None
        self._policies: Sequence[Policy] = capped(caller.may.policies, None)
        self._sized = sized(self._policies)
        self.looks = any(isinstance(policy, Strip | Repair) for policy in self._policies)
        self.ages = any(map(goes_by_age, self._policies))
        self.arguments = SoundArguments(kept, self.key)
        self.rendered = Rendered(kept, self.key)
        self.well_known = False
        self.takes_broken_arguments = all(pool.features.broken_arguments is not False for pool in pools)

    @property
    def lowest_stage(self) -> float:
        """How full a limit must be for the first of the stages."""
        return min([stage.soft.at for stage in self.stages])

    @property
    def context_limit_tokens(self) -> int | None:
        """Tokens of a context: as configured, else what every engine of the model can take, once they said so."""
        if self.model.context_limit_tokens is not None:
            return self.model.context_limit_tokens
        reported = [pool.pool.max_model_len for pool in self.pools]
        return min((limit for limit in reported if limit is not None), default=None)

    @property
    def policies(self) -> Sequence[Policy]:
        """The caller's policies, the model's own limit behind them."""
        self._follow_limit()
        return self._policies

    def _follow_limit(self) -> None:
        if self.model.context_limit_tokens is not None and self._limit_tokens is not None:
            return  # what is configured stays
        limit = self.context_limit_tokens
        if limit != self._limit_tokens:
            reported = self.model.context_limit_tokens is None
            self._limit_tokens, self._policies = limit, capped(self.caller.may.policies, limit, reported=reported)
            self._sized = sized(self._policies)
            self._quiet_up_to = NOTHING_QUIET

    def quiet(self, size: Size, idle_seconds: float) -> bool:
        """Whether no policy with a threshold could do anything about a conversation of this size and rest.

        What is quiet stays quiet in a smaller conversation, so the last quiet size answers for nearly all calls.
        """
        self._follow_limit()
        asked, quiet = (*size, idle_seconds), self._quiet_up_to
        if all(map(le, asked, quiet)):
            return True
        total, largest, messages, reply = size
        if may_act(self._sized, total, largest, messages, idle_seconds=idle_seconds, reply_size=reply):
            return False
        if all(map(ge, asked, quiet)):
            self._quiet_up_to = asked
        return True

    def scope_of(self, session: str) -> Scope:
        """Every limit that bounds a call of a session; "": of none, as of prompts and embeddings."""
        if not session or not self._session_budgets:
            return self.scope
        if (scope := self._scopes.get(key := (self._own, session))) is None:
            limits = session_limits(self._session_budgets, self.caller, session)
            scope = self.scope.joined_by(limits, session_owner(self.caller, session))
            self._scopes.keep(key, scope)
        return scope


def keeping_for(caller: Caller) -> Keeping:
    """Makes handles under a key that, like the salt it comes from, only this tenant's calls have."""
    return Keeping(hashlib.sha256(b"handles:" + caller.cache_salt).digest()) if caller.cache_salt else NOTHING
