"""The ledger: budget is reserved before a call and settled after it, on all of a tenant's limits at once or on none.

Rule: what is admitted is decided in one atomic script by the server's clock, in whole micro-units. A reservation
carries a lease, so a worker that dies gives back what its calls did not use; settling twice charges once; what was
used is charged even if it exceeds the budget (debt), because it has been used.
"""

import uuid
from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from budgets.limit import Dimension, Limit, Mode
from budgets.script import Argument, RunScript, Script
from budgets.usage import Usage

Amounts = Mapping[Dimension, int]
"""Units by dimension; a dimension that is left out is 0."""

_RESERVE = Script.load("budgets", "reserve")
_SETTLE = Script.load("budgets", "settle")
_GRACE_SECONDS = 3600.0
_MICRO = 1_000_000


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose budget it is and what bounds it. A call is given up for dead `lease_seconds` after it was admitted."""

    tenant: str
    limits: tuple[Limit, ...]
    lease_seconds: float = 900.0


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

    `would_deny` are the labels of limits in shadow that would have refused. `local`: granted without the store.
    """

    id: str
    scope: Scope
    amounts: Amounts
    balances: tuple[Balance, ...]
    would_deny: tuple[str, ...] = ()
    local: bool = False


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
    id = uuid.uuid4().hex
    if not scope.limits:
        return _granted(Grant(id, scope, dict(amounts), ()))
    head: list[Argument] = [id, int(scope.lease_seconds * _MICRO), int(_GRACE_SECONDS * _MICRO)]
    rows = [part for limit in scope.limits for part in _reserve_row(limit, amounts)]
    return _answered(run(_RESERVE, _keys(scope.tenant), head + rows), id, scope, amounts)


def settle(run: RunScript, grant: Grant, amounts: Amounts) -> Coroutine[Any, Any, tuple[Balance, ...]]:
    """Charge what was used in place of what was reserved; how the limits stand then (nothing if already settled).

    Sent by the call, like `reserve`. A local grant was never reserved in the store: its use is charged now.
    """
    limits = grant.scope.limits
    if not limits:
        return _settled(None, limits)
    head: list[Argument] = [grant.id, int(grant.local)]
    rows = [part for limit in limits for part in _settle_row(limit, amounts)]
    return _settled(run(_SETTLE, _keys(grant.scope.tenant), head + rows), limits)


async def _granted(grant: Grant) -> Grant | Denied:
    return grant


async def _answered(reply: Awaitable[object], id: str, scope: Scope, amounts: Amounts) -> Grant | Denied:
    refused, wait_us, now_us, used, shadowed = cast("tuple[int, int, int, list[int], list[int]]", await reply)
    if refused:
        limit, in_use = scope.limits[refused - 1], used[refused - 1]
        resets_at = now_us / _MICRO + _drain_seconds(limit, in_use)
        return denial(scope.tenant, limit, amounts, in_use / _scale(limit), wait_us / _MICRO, resets_at)
    would_deny = tuple(scope.limits[number - 1].label for number in shadowed)
    return Grant(id, scope, dict(amounts), balances(scope.limits, used), would_deny)


async def _settled(reply: Awaitable[object] | None, limits: Sequence[Limit]) -> tuple[Balance, ...]:
    if reply is None:
        return ()
    settled, used = cast("tuple[int, list[int]]", await reply)
    return balances(limits, used) if settled else ()


def balances(limits: Sequence[Limit], used: Sequence[float]) -> tuple[Balance, ...]:
    """How limits stand with so many micro-units of each in use."""
    return tuple(
        Balance(
            limit.label,
            limit.dimension,
            limit.mode,
            limit.capacity,
            max(0, int((limit.capacity * _scale(limit) - in_use) // _scale(limit))),
            _drain_seconds(limit, in_use),
        )
        for limit, in_use in zip(limits, used, strict=True)
    )


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


def _reserve_row(limit: Limit, amounts: Amounts) -> tuple[Argument, ...]:
    scale = _scale(limit)
    return (
        _bucket(limit),
        limit.capacity * scale,
        limit.amount * scale,
        int(limit.per_seconds * _MICRO),
        amounts.get(limit.dimension, 0) * scale,
        prompt_share(limit.dimension, amounts) * scale,
        int(limit.mode == "enforce"),
    )


def _settle_row(limit: Limit, amounts: Amounts) -> tuple[Argument, ...]:
    scale = _scale(limit)
    used = amounts.get(limit.dimension, 0) * scale
    return _bucket(limit), limit.amount * scale, int(limit.per_seconds * _MICRO), used


def _scale(limit: Limit) -> int:
    """Micro-units in a unit. Bytes are small enough as they are, and numbers in scripts are exact to 2^53 only."""
    return 1 if limit.dimension == "kv_read_bytes" else _MICRO


def _drain_seconds(limit: Limit, used: float) -> float:
    return used / _scale(limit) / limit.per_second


def _bucket(limit: Limit) -> str:
    return f"{limit.label}:{limit.dimension}"


def _keys(tenant: str) -> tuple[str, str, str]:
    prefix = f"kvgate:1:{{{tenant}}}"
    return f"{prefix}:buckets", f"{prefix}:reservations", f"{prefix}:leases"
