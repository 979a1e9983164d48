"""The ledger: budget is reserved before a call and settled after it, on all of a tenant's limits at once or on none.

Rule: what is admitted is decided in one atomic script by the server's clock, in whole micro-units. A reservation
carries a lease, so a worker that dies gives back what its calls did not use; settling twice charges once; what was
used is charged even if it exceeds the budget (debt), because it has been used.
"""

import secrets
from functools import partial
from typing import cast

from budgets.grant import MICRO, Amounts, Balance, Denied, Grant, Scope, Terms, denial, drain_seconds, scale_of
from budgets.limit import Dimension
from budgets.script import Argument, RunScript, Script, Step

__all__ = [
    "Amounts",
    "Balance",
    "Denied",
    "Grant",
    "Scope",
    "reserve",
    "reserving",
    "settle",
    "settling",
    "unlimited",
]

_RESERVE = Script.load("budgets", "reserve")
_SETTLE = Script.load("budgets", "settle")
_GRACE_US = 3600 * MICRO


def reserving(scope: Scope, amounts: Amounts) -> tuple[str, Step[Grant | Denied]]:
    """Take `amounts` from every limit of the scope, of which there is at least one, or nothing.

    With the lease that it will be known by, for a caller who never hears the answer.
    """
    lease = secrets.token_hex(12)
    args: list[Argument] = ["", int(scope.lease_seconds * MICRO), _GRACE_US]
    for terms in scope.terms:
        taken, kept = _taken(terms, amounts)
        lease += f";{terms.bucket} {taken} {kept}"
        args += (terms.bucket, terms.capacity, terms.refill, terms.period_us, taken, terms.refuses)
    args[0] = lease
    return lease, Step(_RESERVE, scope.keys, args, partial(_reserved, lease, scope, amounts))


def settling(grant: Grant, amounts: Amounts) -> Step[bool]:
    """Charge what was used in place of what was reserved; false if that has been done already.

    A local grant was never reserved in the store: its use is charged now.
    """
    args: list[Argument] = [grant.lease, int(grant.local)]
    for terms in grant.scope.terms:
        taken, kept = _taken(terms, grant.amounts)
        used = amounts.get(terms.dimension, 0) * terms.scale
        args += (terms.bucket, terms.refill, terms.period_us, taken, kept, used)
    return Step(_SETTLE, grant.scope.keys, args, _settled)


def unlimited(scope: Scope, amounts: Amounts) -> Grant:
    """The grant of a scope without limits: nothing is written for it."""
    return Grant(secrets.token_hex(12), scope, amounts)


async def reserve(run: RunScript, scope: Scope, amounts: Amounts) -> Grant | Denied:
    """`reserving` on its own: one round trip; none if there is no limit.

    Whatever `run` raises when the store is away passes through: `budgets.allowance` says what to do then.
    """
    if not scope.limits:
        return unlimited(scope, amounts)
    _, step = reserving(scope, amounts)
    return step.read(await run(step.script, step.keys, step.args))


async def settle(run: RunScript, grant: Grant, amounts: Amounts) -> bool:
    """`settling` on its own."""
    if not grant.scope.limits:
        return False
    step = settling(grant, amounts)
    return step.read(await run(step.script, step.keys, step.args))


def _reserved(lease: str, scope: Scope, amounts: Amounts, reply: object) -> Grant | Denied:
    refused, wait_us, now_us, used, shadowed = cast("tuple[int, int, int, list[int], list[int]]", reply)
    if refused:
        limit, in_use = scope.limits[refused - 1], used[refused - 1]
        resets_at = now_us / MICRO + drain_seconds(limit, in_use)
        return denial(scope.tenant, limit, amounts, in_use / scale_of(limit), wait_us / MICRO, resets_at)
    would_deny = tuple([scope.limits[number - 1].label for number in shadowed])
    return Grant(lease, scope, amounts, would_deny, in_use=tuple(used))


def _settled(reply: object) -> bool:
    return reply == 1


def _taken(terms: Terms, amounts: Amounts) -> tuple[int, int]:
    """Micro-units reserved, and how many of them stay charged if the lease expires."""
    taken = amounts.get(terms.dimension, 0) * terms.scale
    return taken, prompt_share(terms.dimension, amounts) * terms.scale


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
