"""A refusal by the budget as a fault: who limited, what, by how much, and when it would pass.

Rule: times are exact, because the SDKs sleep for whatever they are told. A rate that comes back soon is worth another
try; a spent quota is not, so no SDK is told to wait for the end of a month.
"""

import math
from datetime import UTC, datetime
from typing import Final

from budgets.ledger import Denied
from budgets.limit import Limit, units
from gateway.degrading import Reached
from gateway.errors import Fault, Headers, ModelUnpriced, QuotaSpent, RateLimited, StoreDown
from gateway.reports import LOCAL, budget

LONGEST_WAIT_SECONDS: Final = 120
"""Beyond this no SDK is told to try again: some would sleep until then."""
LAST_SECONDS: Final = datetime.max.replace(tzinfo=UTC).timestamp() - 1
RETRY: Final = (b"x-should-retry", b"true")
NO_RETRY: Final = (b"x-should-retry", b"false")


def fault_of(denied: Denied, reached: Reached | None = None, *, ietf: bool = False) -> Fault:
    """The fault for the client; its extra fields stand inside the error object. `reached`: the step of a soft limit
    that held for the call. `ietf`: the IETF's headers too.
    """
    fault = _fault(denied)
    if denied.local and not denied.store_down:
        fault.headers += (LOCAL,)
    if denied.stood is not None:
        fault.headers += tuple(budget(denied.stood, ietf=ietf))
    if reached is not None:
        fault.headers += (reached.header,)
    if isinstance(fault, RateLimited) and denied.dimension in ("requests", "concurrent_calls"):
        fault.type = "requests"
    return fault


def _fault(denied: Denied) -> Fault:
    wait = denied.retry_after_seconds
    if denied.store_down:
        message = "The budget cannot be checked now, and this limit lets nothing pass unchecked."
        return StoreDown(message, headers=(_seconds(wait),))
    if denied.never:
        message = f"{_said('Limit', denied)} Alone this call may use more than that; ask for fewer tokens."
        return RateLimited(message, headers=(NO_RETRY,), extra=_extra(denied))
    if denied.kind == "quota":
        soon: Headers = (_seconds(wait),) if wait <= LONGEST_WAIT_SECONDS else ()
        message = f"{_said('Quota', denied)} It begins anew at {moment(denied.resets_at)}."
        spent = QuotaSpent(message, headers=(*soon, NO_RETRY), extra=_extra(denied))
        spent.status = denied.status
        return spent
    message = f"{_said('Rate limit', denied)} Please try again in {wait:.3f}s."
    again = RETRY if wait <= LONGEST_WAIT_SECONDS else NO_RETRY
    headers = (_seconds(wait), (b"retry-after-ms", b"%d" % math.ceil(wait * 1000)), again)
    return RateLimited(message, headers=headers, extra=_extra(denied))


def unpriced(model: str, limit: Limit) -> Fault:
    """The refusal of a call whose money a limit counts, but which has no price."""
    message = f"The budget `{limit.label}` counts money, and what answers for the model `{model}` has no price here."
    return ModelUnpriced(message, headers=(NO_RETRY,), extra={"dimension": "money"})


def _said(what: str, denied: Denied) -> str:
    limit, used, requested = (units(denied.dimension, each) for each in (denied.limit, denied.used, denied.requested))
    return f"{what} `{denied.label}` reached for {denied.dimension}: limit {limit}, used {used}, requested {requested}."


def _extra(denied: Denied) -> dict[str, object]:
    return {
        "scope": denied.owner or f"tenant:{denied.tenant}",
        "dimension": denied.dimension,
        "limit": units(denied.dimension, denied.limit),
        "used": units(denied.dimension, denied.used),
        "requested": units(denied.dimension, denied.requested),
        "resets_at": moment(denied.resets_at),
    }


def _seconds(wait: float) -> tuple[bytes, bytes]:
    return b"retry-after", b"%d" % math.ceil(wait)


def moment(seconds: float) -> str:
    """Seconds since 1970 as answers have it; what is further off than a calendar reaches is its last day."""
    return datetime.fromtimestamp(min(seconds, LAST_SECONDS), UTC).isoformat(timespec="milliseconds")
