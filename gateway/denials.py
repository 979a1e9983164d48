"""A refusal by the budget as a fault: who limited, what, by how much, and when it would pass.

Rule: times are exact, because the SDKs sleep for whatever they are told.
"""

import math
from datetime import UTC, datetime

from budgets.ledger import Denied
from gateway.errors import Fault, RateLimited, StoreDown


def fault_of(denied: Denied) -> Fault:
    """The fault for the client; its extra fields stand inside the error object."""
    if denied.store_down:
        message = "The budget cannot be checked now, and this limit lets nothing pass unchecked."
        return StoreDown(message, headers=((b"retry-after", b"%d" % math.ceil(denied.retry_after_seconds)),))
    wait = denied.retry_after_seconds
    message = (
        f"Rate limit `{denied.label}` reached for {denied.dimension}: limit {denied.limit}, used {denied.used}, "
        f"requested {denied.requested}. Please try again in {wait:.3f}s."
    )
    headers = (
        (b"retry-after", b"%d" % math.ceil(wait)),
        (b"retry-after-ms", b"%d" % math.ceil(wait * 1000)),
        (b"x-should-retry", b"true"),
    )
    extra = {
        "scope": f"tenant:{denied.tenant}",
        "dimension": denied.dimension,
        "limit": denied.limit,
        "used": denied.used,
        "requested": denied.requested,
        "resets_at": datetime.fromtimestamp(denied.resets_at, UTC).isoformat(timespec="milliseconds"),
    }
    return RateLimited(message, headers=headers, extra=extra)
