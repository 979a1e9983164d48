"""How long a model's prefill and decode take on a pool's hardware, remembered for sizes that are alike.

Rule: predictions for choosing only. Sizes are rounded up to one of sixteen steps per doubling, which is finer than the
cost model is exact, so that nearly every call finds its answer ready.
"""

from itertools import islice

from budgets import cost
from budgets.geometry import Geometry
from budgets.hardware import Hardware

USUAL_BATCH = 16
"""Sequences that share a decode step when nothing is known: weights are read once for all of them."""
MAX_KEPT = 4_096
"""Sizes of prompts, and as many of replies, some 210 bytes each."""


class Pace:
    """Predicted seconds of one model on one pool's hardware."""

    most = 2 * MAX_KEPT
    __slots__ = ("__weakref__", "_decode", "_geometry", "_hardware", "_prefill")

    def __init__(self, geometry: Geometry, hardware: Hardware) -> None:
        self._geometry = geometry
        self._hardware = hardware
        self._prefill: dict[tuple[int, int], float] = {}
        self._decode: dict[tuple[int, int], float] = {}

    @property
    def weight(self) -> int:
        """Predictions that are remembered."""
        return len(self._prefill) + len(self._decode)

    def prefill_seconds(self, tokens: int, cached_tokens: int = 0) -> float:
        """Of a prompt of `tokens`, the first `cached_tokens` of which the engine still holds."""
        return self._prefilled((rounded(tokens), rounded(cached_tokens)))

    def decode_seconds(self, context_tokens: int, decode_tokens: int) -> float:
        """Of `decode_tokens` tokens that follow a prompt of `context_tokens`."""
        return self._decoded((rounded(context_tokens), rounded(decode_tokens)))

    def seconds(self, tokens: int, cached_tokens: int, decode_tokens: int) -> tuple[float, float, float]:
        """Both, of one call, and last the prefill with nothing cached."""
        prompt = rounded(tokens)
        cold = self._prefilled((prompt, 0))
        prefill = self._prefilled((prompt, rounded(cached_tokens))) if cached_tokens else cold
        return prefill, self._decoded((prompt, rounded(decode_tokens))), cold

    def _prefilled(self, key: tuple[int, int]) -> float:
        if (seconds := self._prefill.get(key)) is None:
            seconds = cost.prefill_seconds(self._geometry, self._hardware, *key)
            _keep(self._prefill, key, seconds)
        return seconds

    def _decoded(self, key: tuple[int, int]) -> float:
        if (seconds := self._decode.get(key)) is None:
            seconds = cost.decode_seconds(self._geometry, self._hardware, *key, USUAL_BATCH)
            _keep(self._decode, key, seconds)
        return seconds


def rounded(tokens: int) -> int:
    """Up to the next of sixteen steps per doubling; exact below 32."""
    if tokens < 32:
        return tokens
    shift = tokens.bit_length() - 5
    return -(-tokens >> shift) << shift


def _keep(kept: dict[tuple[int, int], float], key: tuple[int, int], seconds: float) -> None:
    if len(kept) >= MAX_KEPT:
        for old in list(islice(kept, MAX_KEPT // 2)):
            del kept[old]
    kept[key] = seconds
