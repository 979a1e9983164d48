"""One limit: how much of one dimension may be used, and what happens to a call that would use more.

Rule: a limit is a rate (`per_seconds`: a bucket of `burst` units that refills evenly), a quota (`every`: so much in
each window of the calendar, and what is left is gone at its end), or a number of calls at once (`concurrent_calls`).
Amounts are whole numbers of the parts in which their dimension is counted (`PARTS`), never fractions.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Literal, Self, get_args
from zoneinfo import ZoneInfo

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from budgets.weights import USUAL, WEIGHT_PARTS, Weights
from budgets.window import ABOUT_SECONDS, Period

Dimension = Literal[
    "requests",
    "prefill_tokens",
    "cached_tokens",
    "decode_tokens",
    "total_tokens",
    "weighted_tokens",
    "kv_read_bytes",
    "kv_byte_seconds",
    "gpu_seconds",
    "money",
    "network_bytes",
    "concurrent_calls",
]
Kind = Literal["rate", "quota", "slots"]
Mode = Literal["enforce", "shadow"]
Hardness = Literal["elastic", "strict"]
OnExceed = Literal["debt", "stop"]
OnStoreError = Literal["open", "closed", "local"]

DIMENSIONS: tuple[Dimension, ...] = get_args(Dimension)
COSTS: frozenset[Dimension] = frozenset(("kv_byte_seconds", "gpu_seconds", "money", "network_bytes"))
"""What a call costs beside its tokens: it depends on where it ran, how long it took, and how it was answered."""
GROWING: frozenset[Dimension] = COSTS.union(("decode_tokens", "total_tokens", "weighted_tokens", "kv_read_bytes"))
"""What grows while a reply is generated."""
LARGE: frozenset[Dimension] = COSTS.union(("kv_read_bytes",))
"""What is counted in parts so small that the ledger needs none smaller."""
PARTS: Mapping[Dimension, int] = {"gpu_seconds": 1_000_000, "money": 1_000_000_000, "weighted_tokens": WEIGHT_PARTS}
"""Parts in a unit, where they are not the same: microseconds of a GPU, billionths of the currency, thousandths."""
MICRO_UNITS: Mapping[Dimension, int] = {
    each: 1 if each in LARGE or each == "concurrent_calls" else 1_000_000 // PARTS.get(each, 1) for each in DIMENSIONS
}
"""Micro-units in a part: a million in a token, whole or weighted. Bytes and the like are small enough."""
MOST_PARTS: Mapping[Dimension, int] = {
    each: 10**24 if each in LARGE else 9 * 10**18 // MICRO_UNITS[each] for each in DIMENSIONS
}
"""What an amount may be: more than ten thousand GPUs do in a month. Scripts count micro-units in doubles, which have
each whole number below 2^53 and are good to 15 digits beyond; headers get those of tokens as integers of 64 bits."""
MODEL_NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,127}$"


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError) as fault:
        raise ValueError("there is no such time zone; write it as Europe/Paris") from fault
    return name


class Limit(BaseModel):
    """`amount` parts of `dimension` every `per_seconds`, `burst` of them at once (None: one whole amount); or in each
    calendar window, such as `every` day in `time_zone`; or at once.

    `weights` are of weighted tokens; None: the usual. `model` None: calls of every model count. `elastic`: what is
    expected is reserved and what was used is charged, so calls in flight may end above the limit; `strict`: the
    most that a call can use is reserved. `on_exceed` says what becomes of a stream for which there is no more: it
    goes on, or it ends. `status` is what is answered when a quota is spent. `on_store_error` says what happens
    while the ledger cannot be reached: let pass, refuse, or a bounded local allowance. A limit in shadow is counted
    and reported but refuses nothing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.-]{1,64}$")
    dimension: Dimension
    weights: Weights | None = None
    model: str | None = Field(default=None, pattern=MODEL_NAME)
    amount: PositiveInt
    per_seconds: PositiveFloat | None = None
    burst: PositiveInt | None = None
    every: Period | None = None
    time_zone: Annotated[str, AfterValidator(_zone)] = "UTC"
    hardness: Hardness = "elastic"
    on_exceed: OnExceed = "debt"
    mode: Mode = "enforce"
    status: Literal[402, 403, 422, 429] = 429
    on_store_error: OnStoreError = "local"

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        """Raises `ValueError` for a limit of no kind or of two, and for a setting that its kind has no use for."""
        if self.dimension == "concurrent_calls":
            if self.per_seconds is not None or self.every is not None:
                raise ValueError("concurrent_calls are counted at once; leave out per and every")
        elif (self.per_seconds is None) == (self.every is None):
            raise ValueError("write either per (a rate) or every (a quota of each minute, hour, day, week or month)")
        if self.burst is not None and self.per_seconds is None:
            raise ValueError("burst is of rates only; leave it out")
        if self.time_zone != "UTC" and self.every not in ("day", "week", "month"):
            raise ValueError("time_zone is of quotas of a day, week or month only; leave it out")
        if self.weights is not None and self.dimension != "weighted_tokens":
            raise ValueError("weights are of weighted_tokens only; leave them out, or limit those")
        if self.status != 429 and self.every is None:
            raise ValueError("status is of quotas only; leave it out")
        if self.hardness == "strict" and self.dimension in ("requests", "concurrent_calls"):
            raise ValueError(f"{self.dimension} are known beforehand and always strict; leave hardness out")
        if self.hardness == "strict" and self.dimension in COSTS - {"money"}:
            raise ValueError(f"{self.dimension} of a call are known only when it has ended; leave hardness out")
        if self.on_exceed != "debt" and (self.hardness == "strict" or self.dimension not in GROWING):
            raise ValueError("on_exceed is of elastic limits of what is generated only; leave it out")
        return self

    @cached_property
    def kind(self) -> Kind:
        if self.dimension == "concurrent_calls":
            return "slots"
        return "rate" if self.every is None else "quota"

    @property
    def weighing(self) -> Weights | None:
        """What tokens of each kind count for; None: it counts a dimension as it is."""
        return (self.weights or USUAL) if self.dimension == "weighted_tokens" else None

    def parts_of(self, amounts: Mapping[Dimension, int]) -> int:
        """What a call that uses these amounts counts for; a dimension that is left out is 0."""
        weights = self.weighing
        return amounts.get(self.dimension, 0) if weights is None else weighed(weights, amounts)

    @cached_property
    def label(self) -> str:
        """What replies and metrics call it."""
        if self.name:
            return self.name
        model = "" if self.model is None else f"_of_{self.model.replace('/', '_')}"
        match self.kind:
            case "rate":
                return f"{self.dimension}_per_{self.per_seconds:g}s{model}"
            case "quota":
                return f"{self.dimension}_every_{self.every}{model}"
            case "slots":
                return f"{self.dimension}{model}"

    @property
    def capacity(self) -> int:
        """Parts in a full bucket."""
        return self.burst or self.amount

    @property
    def per_second(self) -> float:
        """Parts that flow back each second; of a quota on average, of slots none."""
        if self.every is not None:
            return self.amount / ABOUT_SECONDS[self.every]
        return self.amount / self.per_seconds if self.per_seconds else 0.0


def weighed(weights: Weights, amounts: Mapping[Dimension, int]) -> int:
    """Parts that a call's tokens count for."""
    kinds: tuple[Dimension, ...] = ("prefill_tokens", "cached_tokens", "decode_tokens")
    return weights.of(*[amounts.get(kind, 0) for kind in kinds])


def too_much(dimension: Dimension, parts: int) -> str | None:
    """What is wrong with an amount that is beyond all measure; None: nothing."""
    most = MOST_PARTS[dimension]
    if parts <= most:
        return None
    return f"expected at most {units(dimension, most)} in {dimension}"


def units(dimension: Dimension, parts: int) -> int | float:
    """An amount as people are told it: whole where its dimension has no smaller parts."""
    in_a_unit = PARTS.get(dimension, 1)
    return parts if in_a_unit == 1 else parts / in_a_unit
