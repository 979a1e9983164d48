"""What a call will probably need, learned from what calls like it needed: tokens, seconds, and where its cache is warm.

Rule: memory of one process, expendable at any moment; it begins with the defaults of `budgets.estimate`. Lengths of
replies and tokens per byte are shared through the store, how warm caches are is not: that goes by the sessions that a
gateway serves. Seconds come from the cost model of the pool's hardware and decide phases, never charges.
"""

import asyncio
import random
from typing import Final

import msgspec

from backends.demand import Demand
from budgets.estimate import Ask, Quantile, estimate
from budgets.lease import Amounts
from budgets.usage import Usage
from gateway.call import Call
from gateway.owned import generated_limit
from gateway.ratios import Ratios
from gateway.replies import SAMPLED, Replies
from gateway.service import Service
from gateway.store import Store

TEMPLATE_TOKENS = 16
"""The most that chat templates put around a message."""
WARMTH_STEP = 0.05
EXCHANGE_SECONDS: Final = 5.0


class Expected(msgspec.Struct, frozen=True):
    """A call's expected tokens; `cached_tokens` of the prompt are where the session was last."""

    prompt_tokens: int
    cached_tokens: int
    decode_tokens: int


class Forecast:
    """Learns from settled calls."""

    def __init__(self) -> None:
        self._warm: dict[str, float] = {}
        self.replies = Replies()
        self.ratios = Ratios()

    async def exchange(self, store: Store) -> None:
        """Tell the store what is new and take what all gateways have learned."""
        await asyncio.gather(self.replies.exchange(store), self.ratios.exchange(store))

    async def keep_exchanging(self, store: Store) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(EXCHANGE_SECONDS)
            await self.exchange(store)

    def ratio(self, model: str) -> float:
        """Tokens of the model's own tokenizer to one that we count; 1 until learned."""
        return self.ratios.of(model, "counted").tokens_per_byte

    def usage(self, call: Call, service: Service) -> Usage:
        """What to reserve for a call before anything is counted."""
        return self._usage(call, service, self._replies(service))

    def _replies(self, service: Service) -> Quantile:
        return self.replies.quantile(service.key, service.caller.may.organisation)

    def _usage(self, call: Call, service: Service, reply: Quantile) -> Usage:
        limit = generated_limit(call, service.caller.may.max_tokens)
        ask = Ask(call.content_bytes, call.prompts, call.sequences, limit, call.generates)
        return estimate(ask, self.ratios.of(service.name, "bytes"), reply, service.bounds)

    def asked(self, call: Call, service: Service) -> tuple[Usage, Amounts, Amounts | None]:
        """What is expected, what is reserved for it, and the most there can be, for strict limits."""
        reply = self._replies(service)
        expected = self._usage(call, service, reply)
        ceiling = service.costs.amounts(most(call, service), call.sequences, call.prompts) if service.strict else None
        asks_on = call.stream or not service.grows or reply.tail == reply.value
        taken = expected if asks_on else self.sure(call, service, expected)
        return expected, service.costs.amounts(taken, call.sequences, call.prompts), ceiling

    def sure(self, call: Call, service: Service, expected: Usage) -> Usage:
        """What to reserve for an answer that cannot ask for more on its way: what 99 in 100 keep to."""
        known = self._replies(service)
        if known.tail is None or known.tail == known.value or not call.generates:
            return expected
        limit = generated_limit(call, service.caller.may.max_tokens)
        tail = known.tail if limit is None else min(known.tail, limit)
        return Usage.estimated(expected.prompt_tokens, max(expected.decode_tokens, tail * max(1, call.sequences)))

    def known_tokens(self, call: Call, service: Service, known_messages: int) -> int:
        """Estimated tokens of the first messages, which the session's home has seen before."""
        known_bytes = sum(map(len, call.messages[:known_messages])) if known_messages else 0
        return self.ratios.of(service.name, "bytes").estimate(known_bytes) if known_bytes else 0

    def warm(self, model: str) -> float:
        """How much of a prefix that was sent before an engine still held, over the last calls; 1 until learned."""
        return self._warm.get(model, 1.0)

    def learn_warmth(self, model: str, known_tokens: int, cached_tokens: int | None) -> None:
        """Take in what an engine found of a prompt's first `known_tokens`; `None`: it does not say."""
        if known_tokens > 0 and cached_tokens is not None:
            found = min(1.0, cached_tokens / known_tokens)
            self._warm[model] = self.warm(model) + WARMTH_STEP * (found - self.warm(model))

    def learn(
        self, call: Call, service: Service, used: Usage, counted_tokens: int | None, *, teaches: bool = True
    ) -> None:
        """Take in a call that an engine reported on; `counted_tokens` is our own count of the prompt as sent.

        Unless it `teaches`, only how long the reply was.
        """
        sampled = service.well_known
        if used.source != "engine" or (sampled and random.random() > SAMPLED):
            return
        model, prompt_tokens, enough = service.name, used.prompt_tokens, sampled
        if not teaches:
            pass
        elif counted_tokens is not None:
            enough = self.ratios.learn(model, "counted", counted_tokens, prompt_tokens, sampled=sampled)
        else:  # without edits the engine saw just these bytes
            enough = self.ratios.learn(model, "bytes", call.content_bytes, prompt_tokens, sampled=sampled)
        if call.generates:
            organisation, each = service.caller.may.organisation, used.decode_tokens // max(1, call.choices)
            enough = self.replies.learn(service.key, each, organisation, sampled=sampled) and enough
        service.well_known = enough


def most(call: Call, service: Service) -> Usage:
    """The most a call can use, for strict limits: a token is at least a byte, and a reply ends at its limit.

    Of several prompts only the longest is counted, so only what they are in bytes is certain of all together.
    """
    prompt = call.content_bytes + call.overhead_tokens + TEMPLATE_TOKENS * (len(call.messages) + 1)
    if service.bounds.prompt_tokens is not None and call.prompts == 1:
        prompt = min(prompt, service.bounds.prompt_tokens)
    limit = generated_limit(call, service.caller.may.max_tokens) or 0
    return Usage.estimated(prompt, limit * max(1, call.sequences) if call.generates else 0)


def demands(service: Service, expected: Expected, session: str | None, home: str | None) -> list[Demand]:
    """The expected work of a call on each pool's hardware; a warm prefix counts only where the session's home is."""
    prompt, decode, model = expected.prompt_tokens, expected.decode_tokens, service.name
    wanted = []
    for pool, pace in zip(service.pools, service.paces, strict=True):
        here = home if home is not None and pool.has(home) else None
        cached = 0 if here is None else expected.cached_tokens
        prefill_seconds, decode_seconds, cold_seconds = pace.seconds(prompt, cached, decode)
        seconds = prefill_seconds, decode_seconds
        wanted.append(Demand(*seconds, prompt - cached, decode, session, here, model, 0.0, cold_seconds))
    return wanted
