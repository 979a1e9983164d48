"""An operator says how much of a limit has been used.

Rule: only what was used is replaced. What running calls have reserved stays reserved, and is settled as ever.
"""

from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from budgets.grant import Misdated
from budgets.scope import MICRO, Scope, Terms
from budgets.script import Script, Step
from budgets.stood import whole

_SET_USED: Final = Script.load("budgets", "set_used", "buckets", "leases", "outstanding")
_GRACE_US: Final = 3600 * MICRO


@dataclass(frozen=True, slots=True)
class Corrected:
    """What was used before, and what calls that run have reserved besides. Whole units."""

    before: int
    reserved: int


def correcting(scope: Scope, used: int, now_seconds: float) -> Step[Corrected | Misdated]:
    """Set what is used of the one limit of the scope, no limit of calls at once; `now_seconds` since 1970."""
    standing = scope.standing(now_seconds)
    (terms,) = standing.terms
    return Step(_SET_USED, standing.keys, (used * terms.scale, _GRACE_US, standing.packed), partial(_corrected, terms))


def _corrected(terms: Terms, reply: object) -> Corrected | Misdated:
    done, now_us, stood = cast("tuple[int, int, bytes]", reply)
    if done < 0:
        return Misdated(now_us / MICRO)
    before, reserved = whole(stood)
    return Corrected(-(-before // terms.scale), -(-reserved // terms.scale))
