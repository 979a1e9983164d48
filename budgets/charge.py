"""What one call costs where it ran: KV held over time, time of GPUs, money.

Rule: integers only, each rounded up once per call: byte-seconds, microseconds of one GPU, billionths of the currency.
Tokens and prices give exact money; GPU time is what the cost model says that this call's work takes on the pool's
hardware, so that a call is not charged for its neighbours. What a call waits for in a queue costs nothing.

    gpu_seconds = devices * (prefill FLOPs / reached FLOP/s + n * step(B) / B + KV read / reached bytes/s)

for n generated tokens in steps of B sequences: such a step, its KV aside, takes the longer of reading the weights and
of the linear FLOPs of B tokens, and its fixed costs.
"""

import math
from typing import Final

import msgspec

from budgets.cost import capped_sum, kv_bytes_per_second, linear_flops, pair_flops, step_seconds
from budgets.geometry import Geometry
from budgets.hardware import Hardware
from budgets.usage import Usage

MICROS: Final = 1_000_000
PRICED_TOKENS: Final = 1_000_000
"""Prices of tokens are for so many."""
MICROS_PER_HOUR: Final = 3_600 * MICROS


class Charge(msgspec.Struct, frozen=True):
    """What a call costs beside its tokens. `money_nanos` is 0 where nothing has a price.

    `network_bytes` are those of bodies, as the client sent them and was sent them.
    """

    kv_byte_seconds: int = 0
    gpu_microseconds: int = 0
    money_nanos: int = 0
    network_bytes: int = 0


class Spent(msgspec.Struct, frozen=True):
    """How long a call took: until its first token, and after it; and how many sequences its engine ran meanwhile."""

    prefill_seconds: float
    decode_seconds: float
    batch: float = 1.0


class TokenPrices(msgspec.Struct, frozen=True):
    """A price list: billionths of the currency for a million tokens."""

    input_nanos: int
    cached_nanos: int
    output_nanos: int

    def of(self, used: Usage) -> int:
        """The price of a call in billionths. Reasoning tokens are generated tokens, and are not added again."""
        dear = (
            used.prefill_tokens * self.input_nanos
            + used.cached_tokens * self.cached_nanos
            + used.decode_tokens * self.output_nanos
        )
        return -(-dear // PRICED_TOKENS)


class Tariff:
    """What calls of one model cost on one kind of hardware; its rates are worked out once.

    A price list of tokens goes before a price of GPU hours; without either nothing costs money.
    """

    __slots__ = (
        "_attention",
        "_attention_to_all",
        "_devices",
        "_growing_bytes",
        "_hour_nanos",
        "_kv",
        "_linear",
        "_shape",
        "_state_bytes",
        "_steps",
        "_tokens",
        "_windows",
    )

    def __init__(
        self, geometry: Geometry, hardware: Hardware, tokens: TokenPrices | None = None, hour_nanos: int | None = None
    ) -> None:
        share, devices = hardware.efficiencies, hardware.count
        attention = devices * hardware.bf16_flops * share.attention_flops
        self._shape = geometry, hardware
        self._tokens = tokens
        self._hour_nanos = hour_nanos
        self._devices = devices * MICROS
        self._linear = linear_flops(geometry, 1) / (hardware.flops(geometry.weight_dtype) * share.flops)
        self._attention_to_all = sum([flops / attention for flops, cap in pair_flops(geometry) if cap is None])
        self._attention = [(flops / attention, cap) for flops, cap in pair_flops(geometry) if cap is not None]
        self._kv = 1 / kv_bytes_per_second(geometry, hardware)
        self._growing_bytes = sum([size for size, window in geometry.grows if window is None])
        self._state_bytes = geometry.state_bytes
        self._windows = [(size, window) for size, window in geometry.grows if window is not None]
        self._steps: dict[int, float] = {}

    def charge(
        self, used: Usage, choices: int, spent: Spent, kv_read_bytes: int, prompts: int = 1, network_bytes: int = 0
    ) -> Charge:
        """The charge of a call of `prompts` with `choices` replies in all, which read `kv_read_bytes` of KV."""
        micros = self.gpu_microseconds(used, spent.batch, kv_read_bytes, prompts)
        held = self.byte_seconds(used, choices, spent)
        return Charge(held, micros, self._money(used, micros), network_bytes)

    @property
    def priced(self) -> bool:
        """Whether calls cost money, be it nothing by a price of 0."""
        return self._tokens is not None or self._hour_nanos is not None

    def gpu_microseconds(self, used: Usage, batch: float, kv_read_bytes: int, prompts: int = 1) -> int:
        """Time of one device that the call's work takes, `batch` sequences decoding side by side.

        Of several prompts each is taken to be as long as the others, rounded up.
        """
        seconds = used.prefill_tokens * self._linear
        seconds += used.decode_tokens * self._step_share(batch) + kv_read_bytes * self._kv
        new, cached = -(-used.prefill_tokens // prompts), used.cached_tokens // prompts
        seconds += prompts * self._attention_to_all * (new * (cached + 1) + new * (new - 1) // 2)
        for rate, cap in self._attention:
            seconds += prompts * rate * capped_sum(cached + 1, new, cap)
        return math.ceil(seconds * self._devices)

    def byte_seconds(self, used: Usage, choices: int, spent: Spent) -> int:
        """KV bytes held times seconds: the prompt's all the time, once for all replies; those of each as it grew."""
        choices, prompt = choices or 1, used.prompt_tokens
        tokens, seconds = used.decode_tokens // choices, spent.prefill_seconds + spent.decode_seconds
        held = self._growing_bytes * prompt
        grown = self._growing_bytes * (tokens * (tokens - 1) // 2)
        for size, window in self._windows:
            kept = min(prompt, window)
            held += size * kept
            grown += size * (capped_sum(prompt, tokens, window) - kept * tokens)
        sequences = choices * self._state_bytes * seconds
        return math.ceil(held * seconds + sequences + choices * grown * spent.decode_seconds / (tokens or 1))

    def _money(self, used: Usage, gpu_microseconds: int) -> int:
        if self._tokens is not None:
            return self._tokens.of(used)
        return -(-gpu_microseconds * self._hour_nanos // MICROS_PER_HOUR) if self._hour_nanos else 0

    def _step_share(self, batch: float) -> float:
        """Seconds of a decode step, less its KV, that fall to one of its sequences."""
        sequences = round(batch) or 1
        if (seconds := self._steps.get(sequences)) is None:
            geometry, hardware = self._shape
            step = step_seconds(geometry, hardware, prefill=(), decode_context_tokens=0, decode_sequences=sequences)
            state = sequences * geometry.state_bytes * self._kv  # comes with the KV that is read
            seconds = self._steps[sequences] = (step - state) / sequences
        return seconds
