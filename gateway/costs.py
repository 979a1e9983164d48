"""What calls of one caller cost of one model, in every dimension that a limit or a price may ask for.

Rule: what depends on the pool is that of the pool which served a call, and before one has that of the dearest. What no
limit asks for is not worked out beforehand.
"""

from collections.abc import Sequence
from typing import Final

from budgets.charge import Charge, Spent, Tariff
from budgets.cost import read_bytes_of
from budgets.ledger import Amounts
from budgets.limit import COSTS, Limit
from budgets.usage import Usage
from config.models import Model
from gateway.call import Call
from gateway.delivery import Delivery
from gateway.pace import Pace
from gateway.pools import ServedPool

PROMPT_TOKEN_BYTES: Final = 4
REPLY_TOKEN_BYTES: Final = 200
"""What a token takes on the wire, before it is known: text, and a frame of a stream around it."""


class Costs:
    """`paces` and `tariffs` go with `pools`, one by one.

    `unpriced`: the one of the `limits` that counts money, where a call may cost none for want of a price.
    """

    __slots__ = ("_by_pool", "_cost_limited", "_kv_limited", "_paces", "_pools", "_reads", "tariffs", "unpriced")

    def __init__(
        self, model: Model, pools: Sequence[ServedPool], paces: Sequence[Pace], limits: Sequence[Limit]
    ) -> None:
        prices = model.price_per_million_tokens
        listed = None if prices is None else prices.listed
        settings = [pool.settings for pool in pools]
        self.tariffs = tuple(
            [Tariff(model.geometry, each.hardware, listed, each.price_per_gpu_hour_nanos) for each in settings]
        )
        free = not all(tariff.priced for tariff in self.tariffs)
        self.unpriced = uncounted(limits, free=free) if prices is None else None
        self._reads = model.geometry.state_bytes, model.geometry.reads
        self._pools, self._paces = pools, paces
        self._by_pool = {pool.name: (pool.pool, tariff) for pool, tariff in zip(pools, self.tariffs, strict=True)}
        self._kv_limited = any(limit.dimension == "kv_read_bytes" for limit in limits)
        self._cost_limited = any(limit.dimension in COSTS for limit in limits)

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
        choices, prompt = choices or 1, -(-used.prompt_tokens // (prompts or 1))
        tokens, longer = divmod(used.decode_tokens, choices)
        read = choices * read_bytes_of(*self._reads, prompt, tokens)
        return read + longer * read_bytes_of(*self._reads, prompt + tokens, 1) if longer else read

    def charge(self, used: Usage, call: Call, delivery: Delivery, kv_read_bytes: int) -> Charge:
        """What a call that has ended cost in the pool that served it."""
        if (found := self._by_pool.get(delivery.pool)) is None:
            return Charge()
        pool, tariff = found
        spent, network = delivery.spent(pool.running(delivery.replica)), delivery.network_bytes
        return tariff.charge(used, call.choices, spent, kv_read_bytes, call.prompts or 1, network)

    def dearest(self, used: Usage, choices: int, prompts: int = 1) -> Charge:
        """The most that a call may cost in one of the pools, in each dimension, by predicted seconds."""
        read, each = self.kv_read_bytes(used, choices, prompts), used.decode_tokens // max(1, choices)
        charges = [Charge()]
        for pool, pace, tariff in zip(self._pools, self._paces, self.tariffs, strict=True):
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
