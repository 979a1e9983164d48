"""How limits stood, as the ledger would say it."""

import msgspec

from budgets.scope import Scope
from budgets.stood import Stood


def stood(scope: Scope, *in_use: int, now_seconds: float = 0.0, fullest: int = 10**9) -> Stood:
    """So many micro-units in use of each limit."""
    return Stood(scope.standing(now_seconds), msgspec.msgpack.encode(in_use), now_seconds, fullest=fullest)
