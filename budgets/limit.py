"""One limit: how much of one dimension a tenant may use.

Rule: a limit is a token bucket: `burst` units at most, refilled evenly with `amount` units every `per_seconds`.
"""

from typing import Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

Dimension = Literal["requests", "prefill_tokens", "cached_tokens", "decode_tokens", "total_tokens", "kv_read_bytes"]
Mode = Literal["enforce", "shadow"]
OnStoreError = Literal["open", "closed", "local"]

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)


class Limit(BaseModel):
    """`amount` units of `dimension` every `per_seconds`, `burst` of them at once (None: one whole amount).

    `on_store_error` says what happens while the ledger cannot be reached: let pass, refuse, or a bounded local
    allowance. A limit in shadow is counted and reported but refuses nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    dimension: Dimension
    amount: PositiveInt
    per_seconds: PositiveFloat
    burst: PositiveInt | None = None
    mode: Mode = "enforce"
    on_store_error: OnStoreError = "local"

    @property
    def label(self) -> str:
        """What replies and metrics call it."""
        return self.name or f"{self.dimension}_per_{self.per_seconds:g}s"

    @property
    def capacity(self) -> int:
        """Units in a full bucket."""
        return self.burst or self.amount

    @property
    def per_second(self) -> float:
        """Units that flow back each second."""
        return self.amount / self.per_seconds
