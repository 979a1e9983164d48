"""How limits stand: what is used, what calls that run have reserved, what is left and when it comes back.

Rule: reading changes nothing, and says what the next reservation would meet.
"""

from dataclasses import dataclass
from functools import partial
from typing import cast

from budgets.grant import Misdated, remaining
from budgets.scope import MICRO, Scope, Standing, Terms
from budgets.script import Script, Step
from budgets.stood import whole

_STATE = Script.load("budgets", "state", "buckets", "leases", "outstanding")


@dataclass(frozen=True, slots=True)
class Account:
    """One limit. Whole units; `used` and `reserved` together are what is in use, which may be more than the limit.

    `resets_at` (seconds since 1970): when nothing would be in use any more if nobody used anything.
    """

    terms: Terms
    used: int
    reserved: int
    remaining: int
    resets_at: float


def stating(scope: Scope, now_seconds: float) -> Step[tuple[Account, ...] | Misdated]:
    """The accounts of a scope, of which there is at least one, in the order of its limits."""
    standing = scope.standing(now_seconds)
    return Step(_STATE, standing.keys, (standing.packed,), partial(_stated, standing))


def _stated(standing: Standing, reply: object) -> tuple[Account, ...] | Misdated:
    found, now_us, in_use, held = cast("tuple[int, int, bytes, bytes]", reply)
    if found < 0:
        return Misdated(now_us / MICRO)
    triples = zip(standing.terms, whole(in_use), whole(held), strict=True)
    return tuple([_account(terms, used, reserved, now_us / MICRO) for terms, used, reserved in triples])


def _account(terms: Terms, in_use: int, held: int, now_seconds: float) -> Account:
    reserved = -(-held // terms.scale)
    used = max(0, -(-in_use // terms.scale) - reserved)
    resets_at = now_seconds + terms.reset_seconds(in_use, now_seconds)
    return Account(terms, used, reserved, remaining(terms, in_use), resets_at)
