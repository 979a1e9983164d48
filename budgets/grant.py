"""What the ledger is asked and what it answers: a scope with its limits, a grant or a denial, and balances.

Rule: values only. Amounts are whole units of a dimension; the ledger itself counts in micro-units.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from budgets.limit import Dimension, Limit, Mode

MICRO = 1_000_000

Amounts = Mapping[Dimension, int]
"""Units by dimension; a dimension that is left out is 0."""


@dataclass(frozen=True, slots=True)
class Terms:
    """One limit as the scripts want it, in micro-units and microseconds."""

    bucket: str
    dimension: Dimension
    scale: int
    capacity: int
    refill: int
    period_us: int
    refuses: int

    @classmethod
    def of(cls, limit: Limit) -> "Terms":
        scale = scale_of(limit)
        return cls(
            f"{limit.label}:{limit.dimension}",
            limit.dimension,
            scale,
            limit.capacity * scale,
            limit.amount * scale,
            max(1, int(limit.per_seconds * MICRO)),
            int(limit.mode == "enforce"),
        )


@dataclass(frozen=True)
class Scope:
    """Whose budget it is and what bounds it; best made once and kept, since it holds the limits made ready.

    A call is given up for dead `lease_seconds` after it was admitted.
    """

    tenant: str
    limits: tuple[Limit, ...]
    lease_seconds: float = 900.0

    @cached_property
    def terms(self) -> tuple[Terms, ...]:
        return tuple([Terms.of(limit) for limit in self.limits])

    @cached_property
    def keys(self) -> tuple[str, str]:
        return f"kvgate:1:{{{self.tenant}}}:buckets", f"kvgate:1:{{{self.tenant}}}:leases"


@dataclass(frozen=True, slots=True)
class Balance:
    """How one limit stands. `remaining` is never below 0; after `reset_seconds` without use the bucket is full."""

    label: str
    dimension: Dimension
    mode: Mode
    limit: int
    remaining: int
    reset_seconds: float


@dataclass(frozen=True, slots=True)
class Grant:
    """Proof that budget was reserved; `settle` takes it back.

    `lease` is what the store keeps of it: an id, then `bucket amount kept` of every limit in micro-units.
    `would_deny` are the labels of limits in shadow that would have refused. `local`: granted without the store.
    """

    lease: str
    scope: Scope
    amounts: Amounts
    would_deny: tuple[str, ...] = ()
    local: bool = False
    in_use: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        return self.lease.partition(";")[0]

    @property
    def balances(self) -> tuple[Balance, ...]:
        """How the limits stood right after; nothing if this was granted without the store."""
        return tuple(map(_balance, self.scope.limits, self.in_use))


@dataclass(frozen=True, slots=True)
class Denied:
    """No budget, and when there will be: the call would pass in `retry_after_seconds` if nobody else used any.

    `used` counts against `limit` (a full bucket); `resets_at` (seconds since 1970) is when nothing will be in use.
    `store_down`: nothing is used up, but this limit lets nothing pass while the ledger cannot be reached.
    """

    tenant: str
    label: str
    dimension: Dimension
    limit: int
    used: int
    requested: int
    retry_after_seconds: float
    resets_at: float
    local: bool = False
    store_down: bool = False


def remaining(limit: Limit, in_use: int) -> int:
    """Whole units left when so many micro-units are in use; never below 0."""
    return max(0, limit.capacity - -(-in_use // scale_of(limit)))


def _balance(limit: Limit, in_use: int) -> Balance:
    left, seconds = remaining(limit, in_use), drain_seconds(limit, in_use)
    return Balance(limit.label, limit.dimension, limit.mode, limit.capacity, left, seconds)


def denial(
    tenant: str, limit: Limit, amounts: Amounts, used: float, retry_after_seconds: float, resets_at: float
) -> Denied:
    """A refusal by `limit`, of which `used` units are in use."""
    return Denied(
        tenant,
        limit.label,
        limit.dimension,
        limit.capacity,
        int(-(-used // 1)),
        amounts.get(limit.dimension, 0),
        retry_after_seconds,
        resets_at,
    )


def scale_of(limit: Limit) -> int:
    """Micro-units in a unit. Bytes are small enough as they are, and numbers in scripts are exact to 2^53 only."""
    return 1 if limit.dimension == "kv_read_bytes" else MICRO


def drain_seconds(limit: Limit, used: float) -> float:
    return used / scale_of(limit) / limit.per_second
