"""The ledger: budget is reserved before a call and settled after it, on all of a tenant's limits at once or on none.

Rule: what is admitted is decided in one atomic script by the server's clock, in whole micro-units. A reservation
carries a lease, so a worker that dies gives back what its calls did not use; settling twice charges once; what was
used is charged even if it exceeds the budget (debt), because it has been used.
"""

import secrets
from collections.abc import Awaitable, Coroutine, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

from budgets.limit import Dimension, Limit, Mode
from budgets.script import Argument, RunScript, Script
from budgets.usage import Usage

Amounts = Mapping[Dimension, int]
"""Units by dimension; a dimension that is left out is 0."""

_RESERVE = Script.load("budgets", "reserve")
_SETTLE = Script.load("budgets", "settle")
_MICRO = 1_000_000
_GRACE_US = 3600 * _MICRO


@dataclass(frozen=True, slots=True)
class _Terms:
    """One limit as the scripts want it, in micro-units and microseconds."""

    bucket: str
    dimension: Dimension
    scale: int
    capacity: int
    refill: int
    period_us: int
    refuses: int

    @classmethod
    def of(cls, limit: Limit) -> "_Terms":
        scale = _scale(limit)
        return cls(
            f"{limit.label}:{limit.dimension}",
            limit.dimension,
            scale,
            limit.capacity * scale,
            limit.amount * scale,
            int(limit.per_seconds * _MICRO),
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
    def terms(self) -> tuple[_Terms, ...]:
        return tuple([_Terms.of(limit) for limit in self.limits])

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


def reserve(run: RunScript, scope: Scope, amounts: Amounts) -> Coroutine[Any, Any, Grant | Denied]:
    """Take `amounts` from every limit of the scope, or nothing. One round trip; none if there is no limit.

    The script is sent by the call and its answer awaited later, so that calls made together share a round trip.
    Whatever `run` raises when the store is away passes through: `budgets.allowance` says what to do then.
    """
    id = secrets.token_hex(12)
    if not scope.limits:
        return _as_is(Grant(id, scope, amounts))
    lease = id
    args: list[Argument] = ["", int(scope.lease_seconds * _MICRO), _GRACE_US]
    for terms in scope.terms:
        taken, kept = _taken(terms, amounts)
        lease += f";{terms.bucket} {taken} {kept}"
        args += (terms.bucket, terms.capacity, terms.refill, terms.period_us, taken, terms.refuses)
    args[0] = lease
    return _answered(run(_RESERVE, scope.keys, args), lease, scope, amounts)


def settle(run: RunScript, grant: Grant, amounts: Amounts) -> Coroutine[Any, Any, bool]:
    """Charge what was used in place of what was reserved; false if that has been done already.

    Sent by the call, like `reserve`. A local grant was never reserved in the store: its use is charged now.
    """
    scope = grant.scope
    if not scope.limits:
        return _settled(None)
    args: list[Argument] = [grant.lease, int(grant.local)]
    for terms in scope.terms:
        taken, kept = _taken(terms, grant.amounts)
        used = amounts.get(terms.dimension, 0) * terms.scale
        args += (terms.bucket, terms.refill, terms.period_us, taken, kept, used)
    return _settled(run(_SETTLE, scope.keys, args))


async def _as_is(grant: Grant) -> Grant | Denied:
    return grant


async def _answered(reply: Awaitable[object], lease: str, scope: Scope, amounts: Amounts) -> Grant | Denied:
    refused, wait_us, now_us, used, shadowed = cast("tuple[int, int, int, list[int], list[int]]", await reply)
    if refused:
        limit, in_use = scope.limits[refused - 1], used[refused - 1]
        resets_at = now_us / _MICRO + _drain_seconds(limit, in_use)
        return denial(scope.tenant, limit, amounts, in_use / _scale(limit), wait_us / _MICRO, resets_at)
    would_deny = tuple([scope.limits[number - 1].label for number in shadowed])
    return Grant(lease, scope, amounts, would_deny, in_use=tuple(used))


async def _settled(reply: Awaitable[object] | None) -> bool:
    return reply is not None and await reply == 1


def _taken(terms: _Terms, amounts: Amounts) -> tuple[int, int]:
    """Micro-units reserved, and how many of them stay charged if the lease expires."""
    taken = amounts.get(terms.dimension, 0) * terms.scale
    return taken, prompt_share(terms.dimension, amounts) * terms.scale


def _balance(limit: Limit, in_use: int) -> Balance:
    scale = _scale(limit)
    remaining = max(0, limit.capacity - -(-in_use // scale))
    return Balance(limit.label, limit.dimension, limit.mode, limit.capacity, remaining, _drain_seconds(limit, in_use))


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


def amounts_of(usage: Usage, kv_read_bytes: int) -> Amounts:
    """The amounts of one call, to reserve by an estimated usage or to settle by a real one."""
    return {
        "requests": 1,
        "prefill_tokens": usage.prefill_tokens,
        "cached_tokens": usage.cached_tokens,
        "decode_tokens": usage.decode_tokens,
        "total_tokens": usage.total_tokens,
        "kv_read_bytes": kv_read_bytes,
    }


def prompt_share(dimension: Dimension, amounts: Amounts) -> int:
    """What stays charged of a call whose worker died: the request and its prompt, which was certainly sent."""
    match dimension:
        case "requests" | "prefill_tokens" | "cached_tokens":
            return amounts.get(dimension, 0)
        case "total_tokens":
            prompt = amounts.get("prefill_tokens", 0) + amounts.get("cached_tokens", 0)
            return min(prompt, amounts.get("total_tokens", 0))
        case "decode_tokens" | "kv_read_bytes":
            return 0


def _scale(limit: Limit) -> int:
    """Micro-units in a unit. Bytes are small enough as they are, and numbers in scripts are exact to 2^53 only."""
    return 1 if limit.dimension == "kv_read_bytes" else _MICRO


def _drain_seconds(limit: Limit, used: float) -> float:
    return used / _scale(limit) / limit.per_second
