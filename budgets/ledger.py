"""The ledger: budget is reserved before a call and settled after it, on all limits that bound it at once or on none.

Rule: what is admitted is decided in one atomic script by the server's clock, in whole micro-units. A reservation
carries a lease, so a worker that dies gives back what its calls did not use; settling twice charges once; what was
used is charged even if it exceeds the budget (debt), because it has been used.
"""

import dataclasses
import secrets
from functools import partial
from typing import Any, Final

from budgets import lease
from budgets.grant import Balance, Denied, Grant, Misdated, denial
from budgets.lease import Amounts
from budgets.limit import Limit
from budgets.record import Entry, encoded
from budgets.scope import MICRO, Scope, Terms
from budgets.script import Argument, RunScript, Script, Step
from budgets.stood import Stood

__all__ = [
    "Amounts",
    "Balance",
    "Denied",
    "Grant",
    "Misdated",
    "Scope",
    "extending",
    "reserve",
    "reserving",
    "settle",
    "settling",
    "unlimited",
]

_RESERVE = Script.load("budgets", "reserve", "buckets", "leases")
_EXTEND = Script.load("budgets", "extend", "buckets", "leases")
_SETTLE = Script.load("budgets", "settle", "buckets", "leases")
_GRACE_US: Final = 3600 * MICRO
_NEVER_US: Final = 10**18
"""What the script says of a call that would never pass."""
_MISDATED: Final = -1
_NEVER_RESERVED: Final = 2


def reserving(
    scope: Scope, amounts: Amounts, now_seconds: float = 0.0, most: Amounts | None = None, id: str = ""
) -> tuple[Grant, Step[Grant | Denied | Misdated]]:
    """Take `amounts` from every limit of the scope, of which there is at least one, or nothing.

    Strict limits are asked for `most`, the most that the call can use. `now_seconds` (since 1970) chooses the windows
    of quotas; if the server's clock disagrees, the answer is `Misdated`. `id` must never come twice; none: random.
    With the grant as it would be, for a caller who never hears the answer.
    """
    standing = scope.standing(now_seconds)
    asked = Grant(id or secrets.token_hex(12), scope, amounts, standing=standing, at_seconds=now_seconds, most=most)
    told = lease.asked(scope.lease_us, _GRACE_US, standing, amounts, most)
    args = (standing.told(now_seconds), asked.id, told)
    return asked, Step(_RESERVE, standing.keys, args, partial(_reserved, asked))


def extending(grant: Grant, more: Amounts) -> Step[Grant | Limit | None]:
    """Take `more` from the elastic limits of a call that runs: the grant that it has, or a limit that refused.

    None: the lease has run out, and the call goes on without. More was generated, so it stays charged if the worker
    dies. What was refused is charged in the end all the same, if it is used. Whoever never hears the answer settles
    the grant like any other.
    """
    scope, standing = grant.scope, grant.stands
    told = lease.more(scope.lease_us, _GRACE_US, standing, more)
    return Step(_EXTEND, standing.keys, (grant.id, told), partial(_extended, grant))


def settling(grant: Grant, amounts: Amounts, entry: Entry | None = None) -> Step[bool]:
    """Charge what was used in place of what was reserved, and record it; false if that has been done already.

    Of a local grant nobody knows whether it was reserved: it is charged once either way. A grant without limits never
    was, and has only its record; it leaves a mark, so that it too is settled once.
    """
    scope, standing = grant.scope, grant.stands
    made = int(grant.local) if standing.terms else _NEVER_RESERVED
    keys = standing.keys if standing.terms else (*standing.keys, scope.marks)
    told = lease.used(made, _GRACE_US, standing, amounts)
    if entry is None:
        return Step(_SETTLE, keys, (standing.known, grant.id, told), _settled)
    args: tuple[Argument, ...] = (standing.known, grant.id, told, entry.keep, *map(encoded, entry.records))
    return Step(_SETTLE, (*keys, entry.stream), args, _settled)


def unlimited(scope: Scope, amounts: Amounts, id: str) -> Grant:
    """The grant of a scope without limits: nothing is written for it."""
    return Grant(id, scope, amounts)


async def reserve(
    run: RunScript, scope: Scope, amounts: Amounts, now_seconds: float = 0.0, most: Amounts | None = None
) -> Grant | Denied:
    """`reserving` on its own, asked again where the clocks disagree: one round trip, two then; none without limits.

    Whatever `run` raises when the store is away passes through: `budgets.allowance` says what to do then.
    """
    if not scope.limits:
        return unlimited(scope, amounts, secrets.token_hex(12))
    found: Grant | Denied | Misdated = Misdated(now_seconds)
    while isinstance(found, Misdated):
        _, step = reserving(scope, amounts, found.now_seconds, most)
        found = step.read(await run(step.script, step.keys, step.args))
    return found


async def settle(run: RunScript, grant: Grant, amounts: Amounts, entry: Entry | None = None) -> bool:
    """`settling` on its own."""
    if not grant.scope.limits and entry is None:
        return False
    step = settling(grant, amounts, entry)
    return step.read(await run(step.script, step.keys, step.args))


def _reserved(asked: Grant, reply: Any) -> Grant | Denied | Misdated:
    refused, wait_us, now_us, *rest = reply
    now = now_us / MICRO
    if refused == _MISDATED:
        return Misdated(now)
    standing = asked.stands
    terms = standing.terms
    in_use, tightest, fullest, shadowed, near = rest
    stood = Stood(standing, in_use, now, tightest, fullest, near)
    if refused:
        return _denied(asked, terms[refused - 1], stood.in_use[refused - 1], wait_us, stood)
    would_deny = tuple([terms[number - 1].limit.label for number in shadowed]) if shadowed else ()
    return Grant(asked.id, asked.scope, asked.amounts, would_deny, False, asked.standing, now, asked.most, stood)


def _denied(asked: Grant, terms: Terms, in_use: int, wait_us: int, stood: Stood) -> Denied:
    resets_at = stood.at_seconds + terms.reset_seconds(in_use, stood.at_seconds)
    denied = denial(asked, terms, in_use / terms.scale, wait_us / MICRO, resets_at)
    return dataclasses.replace(denied, never=wait_us >= _NEVER_US, stood=stood)


def _extended(grant: Grant, refused: Any) -> Grant | Limit | None:
    if not refused:
        return grant
    limits = [grant.stands.terms[number - 1].limit for number in refused if number > 0]
    return next((limit for limit in limits if limit.on_exceed == "stop"), limits[0] if limits else None)


def _settled(reply: object) -> bool:
    return reply == 1
