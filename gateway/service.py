"""What one caller gets of one model: everything of the configuration that a call asks, worked out once.

Rule: built when a caller first uses a model under a configuration, and read by every call after it; nothing here
changes but the context limit, which the engines may report later.
"""

import hashlib
from collections.abc import Sequence
from operator import ge, le
from typing import TYPE_CHECKING, Final

from budgets.charge import Charge, Spent, Tariff
from budgets.cost import kv_read_bytes
from budgets.estimate import Bounds
from budgets.ledger import Amounts, Scope
from budgets.limit import COSTS, GROWING, Limit
from budgets.usage import Usage
from config.models import Model
from gateway.arguments import SoundArguments
from gateway.call import Call
from gateway.counting import Counter
from gateway.delivery import Delivery
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
PROMPT_TOKEN_BYTES: Final = 4
REPLY_TOKEN_BYTES: Final = 200
"""What a token takes on the wire, before it is known: text, and a frame of a stream around it."""


class Service:
    """One caller and one model. `paces` and `tariffs` go with `pools`, one by one.

    `asked_for` is the model whose budgets bind, if that is another one; `first_pool` goes before all others. `stages`
    are what the caller gets instead once its budgets run low. `unpriced`: a limit that counts money, where a call may
    cost none for want of a price. `kept` is what all services remember in.
    """

    __slots__ = (
        "_cost_limited",
        "_kv_limited",
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
        "paces",
        "place",
        "pools",
        "records_facts",
        "rendered",
        "scope",
        "session_limits",
        "stages",
        "strict",
        "strip",
        "summary",
        "takes_broken_arguments",
        "tariffs",
        "unpriced",
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
        self.key = (caller.tenant, model.name)
        self.bounds = Bounds(prompt_tokens=caller.may.context.limit_tokens if caller.may.mode == "enforce" else None)
        self.model = model
        self.pools = tuple(pools)
        self.paces = tuple([pool.pace(model.geometry) for pool in pools])
        prices = model.price_per_million_tokens
        listed = None if prices is None else prices.listed
        settings = [pool.settings for pool in pools]
        self.tariffs = tuple(
            [Tariff(model.geometry, each.hardware, listed, each.price_per_gpu_hour_nanos) for each in settings]
        )
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
        self._kv_limited = any(limit.dimension == "kv_read_bytes" for limit in limits)
        self._cost_limited = any(limit.dimension in COSTS for limit in limits)
        free = not all(tariff.priced for tariff in self.tariffs)
        self.unpriced = uncounted(limits, free=free) if prices is None else None
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
        limit = self.context_limit_tokens
        if limit != self._limit_tokens:
            self._limit_tokens, self._policies = limit, capped(self.caller.may.policies, limit)
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

    def amounts(self, used: Usage, choices: int, prompts: int = 1, charge: Charge | None = None) -> Amounts:
        """A call in the dimensions of its limits. `used` is that of all prompts and all choices together.

        `charge` None: it has not run, so what depends on where it will is that of the dearest pool.
        """
        amounts: dict[str, int] = {
            "requests": 1,
            "prefill_tokens": used.prefill_tokens,
            "cached_tokens": used.cached_tokens,
            "decode_tokens": used.decode_tokens,
            "total_tokens": used.prefill_tokens + used.cached_tokens + used.decode_tokens,
        }
        if self._kv_limited:
            amounts["kv_read_bytes"] = self.kv_read_bytes(used, choices, prompts)
        if self._cost_limited:
            charge = charge or self.dearest(used, choices, prompts)
            amounts["kv_byte_seconds"] = charge.kv_byte_seconds
            amounts["gpu_seconds"] = charge.gpu_microseconds
            amounts["money"] = charge.money_nanos
            amounts["network_bytes"] = charge.network_bytes
        return amounts  # type: ignore[return-value]  # the keys are dimensions

    def kv_read_bytes(self, used: Usage, choices: int, prompts: int = 1) -> int:
        """KV bytes re-read while decoding, by the closed form; every choice reads its own prompt's for itself.

        `choices` are those of all prompts; their lengths are not told, so they are taken to differ by a token at most.
        Of several prompts each is taken to be as long as the others, rounded up,
        which is exact but for the rounding wherever attention reads the whole context.
        """
        choices, prompt = max(1, choices), -(-used.prompt_tokens // max(1, prompts))
        tokens, longer = divmod(used.decode_tokens, choices)
        read = choices * kv_read_bytes(self.model.geometry, prompt, tokens)
        return read + longer * kv_read_bytes(self.model.geometry, prompt + tokens, 1) if longer else read

    def charge(self, used: Usage, call: Call, delivery: Delivery, kv_read_bytes: int) -> Charge:
        """What a call that has ended cost in the pool that served it."""
        for pool, tariff in zip(self.pools, self.tariffs, strict=True):
            if pool.name == delivery.pool:
                batch = pool.pool.running(delivery.replica)
                spent, network = delivery.spent(batch), delivery.network_bytes
                return tariff.charge(used, call.choices, spent, kv_read_bytes, max(1, call.prompts), network)
        return Charge()

    def dearest(self, used: Usage, choices: int, prompts: int = 1) -> Charge:
        """The most that a call may cost in one of the pools, in each dimension, by predicted seconds."""
        read, each = self.kv_read_bytes(used, choices, prompts), used.decode_tokens // max(1, choices)
        charges = [Charge()]
        for pool, pace, tariff in zip(self.pools, self.paces, self.tariffs, strict=True):
            prefill, decode = pace.prefill_seconds(used.prompt_tokens), pace.decode_seconds(used.prompt_tokens, each)
            spent = Spent(prefill, decode, pool.pool.usual_running)
            charges.append(tariff.charge(used, choices, spent, read, max(1, prompts)))
        return Charge(
            max(charge.kv_byte_seconds for charge in charges),
            max(charge.gpu_microseconds for charge in charges),
            max(charge.money_nanos for charge in charges),
            PROMPT_TOKEN_BYTES * used.prompt_tokens + REPLY_TOKEN_BYTES * used.decode_tokens,
        )


def uncounted(limits: Sequence[Limit], *, free: bool) -> Limit | None:
    """A limit of money that cannot count what a model without a price list costs, one that refuses before others.

    A strict one needs the list, the others need one where a pool has no price of its own either (`free`).
    """
    money = [limit for limit in limits if limit.dimension == "money" and (free or limit.hardness == "strict")]
    return min(money, key=lambda limit: limit.mode != "enforce", default=None)


def keeping_for(caller: Caller) -> Keeping:
    """Makes handles under a key that, like the salt it comes from, only this tenant's calls have."""
    return Keeping(hashlib.sha256(b"handles:" + caller.cache_salt).digest()) if caller.cache_salt else NOTHING
