"""When a call would pass a limit, as the limit stands: the rule of `reserve.lua`, for those who only want to know.

Rule: reading only, in whole parts of a dimension; if nobody else uses anything meanwhile, the answer holds.
"""

from typing import Final

from budgets.statement import Account

NEVER: Final = float("inf")


def wait_seconds(account: Account, asked: int, now_seconds: float) -> float:
    """How long a call that asks for so many parts would have to wait; `NEVER` for a strict limit that it exceeds.

    Of calls at once one is asked for; how long those that run still take is not known, a second is said as to clients.
    """
    limit, in_use = account.terms.limit, account.used + account.reserved
    if limit.kind == "slots":
        return 0.0 if in_use < limit.capacity else 1.0
    if limit.hardness == "strict" and asked > limit.capacity:
        return NEVER
    excess = in_use - max(0, limit.capacity - max(1, asked))
    if excess <= 0:
        return 0.0
    if account.terms.window is not None:
        return max(0.0, account.terms.window.ends_at - now_seconds)
    return excess / limit.per_second
