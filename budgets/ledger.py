"""The ledger: budget is reserved before a call and settled after it, on all limits that bound it at once or on none.

Rule: what is admitted is decided in one atomic script by the server's clock, in whole micro-units. A reservation
carries a lease, so a worker that dies gives back what its calls did not use; settling twice charges once; what was
used is charged even if it exceeds the budget (debt), because it has been used.
"""

import dataclasses
import secrets
from functools import partial
from typing import Final, cast

import msgspec
from msgspec.structs import replace

from budgets import lease
from budgets.grant import Balance, Denied, Grant, Misdated, denial
from budgets.lease import Amounts
from budgets.limit import Limit
from budgets.record import Entry, encoded
from budgets.scope import MICRO, Scope, Terms
from budgets.script import Argument, RunScript, Script, Step

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

_RESERVE = Script.load("budgets", "reserve", "buckets")
_EXTEND = Script.load("budgets", "extend", "buckets")
_SETTLE = Script.load("budgets", "settle", "buckets")
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
    told = lease.packed(standing, amounts, most)
    args = (asked.id, int(scope.lease_seconds * MICRO), _GRACE_US, standing.packed, told)
    return asked, Step(_RESERVE, standing.keys, args, partial(_reserved, asked))


def extending(grant: Grant, more: Amounts) -> tuple[Grant, Step[Grant | Limit | None]]:
    """Take `more` from the elastic limits of a call that runs: its grant from now on, or a limit that refused.

    None: the lease has run out, and the call goes on without. More was generated, so it stays charged if the worker
    dies. What was refused is charged in the end all the same, if it is used. With the grant as it would be, for a
    caller who never hears the answer.
    """
    standing, held, longer = grant.stands, grant.lease, grant.id
    counted = [terms for terms in standing.terms if terms.entry]
    for terms, entry in zip(counted, held.decode().split(";")[1:], strict=True):
        _, taken, kept = entry.split(" ")
        extra = 0 if terms.limit.hardness == "strict" else more.get(terms.dimension, 0) * terms.scale
        longer += f"{terms.entry} {int(taken) + extra} {int(kept) + extra}"
    args = (held, longer, int(grant.scope.lease_seconds * MICRO), _GRACE_US, standing.packed)
    extended = replace(grant, kept=longer.encode())
    return extended, Step(_EXTEND, standing.keys, args, partial(_extended, extended))


def settling(grant: Grant, amounts: Amounts, entry: Entry | None = None) -> Step[bool]:
    """Charge what was used in place of what was reserved, and record it; false if that has been done already.

    Of a local grant nobody knows whether it was reserved: it is charged once either way. A grant without limits never
    was, and has only its record; it leaves a mark, so that it too is settled once.
    """
    standing = grant.stands
    used = msgspec.msgpack.encode(lease.used(standing, amounts))
    unreserved = _NEVER_RESERVED if not standing.terms else int(grant.local)
    args: list[Argument] = [grant.lease, unreserved, _GRACE_US, standing.packed, used]
    if entry is None:
        return Step(_SETTLE, standing.keys, args, _settled)
    args += (entry.keep, *map(encoded, entry.records))
    marks = () if standing.terms else (grant.scope.marks,)
    return Step(_SETTLE, (*standing.keys, *marks, entry.stream), args, _settled)


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


def _reserved(asked: Grant, reply: object) -> Grant | Denied | Misdated:
    refused, wait_us, now_us, used, shadowed, kept = cast("tuple[int, int, int, list[int], list[int], bytes]", reply)
    now, terms = now_us / MICRO, asked.stands.terms
    if refused == _MISDATED:
        return Misdated(now)
    if refused:
        denied = _denied(asked, terms[refused - 1], used[refused - 1], wait_us, now)
        return dataclasses.replace(denied, standing=asked.standing, in_use=tuple(used), at_seconds=now)
    would_deny = tuple([terms[number - 1].limit.label for number in shadowed])
    return Grant(
        asked.id, asked.scope, asked.amounts, would_deny, False, tuple(used), asked.standing, now, asked.most, kept
    )


def _denied(asked: Grant, terms: Terms, in_use: int, wait_us: int, now: float) -> Denied:
    resets_at = now + terms.reset_seconds(in_use, now)
    denied = denial(asked.scope.tenant, terms, asked.amounts, in_use / terms.scale, wait_us / MICRO, resets_at)
    return dataclasses.replace(denied, never=True) if wait_us >= _NEVER_US else denied


def _extended(longer: Grant, reply: object) -> Grant | Limit | None:
    refused = cast("list[int]", reply)
    if not refused:
        return longer
    limits = [longer.stands.terms[number - 1].limit for number in refused if number > 0]
    return next((limit for limit in limits if limit.on_exceed == "stop"), limits[0] if limits else None)


def _settled(reply: object) -> bool:
    return reply == 1
