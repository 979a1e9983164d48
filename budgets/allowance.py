"""What a worker may grant by itself while the ledger cannot be reached.

Rule: each limit says what happens then. `open` passes, `closed` refuses, `local` passes a stated share of the limit in
this worker, so that an outage of the store is neither an outage of the service nor free for all.
"""

import uuid
from collections import OrderedDict
from dataclasses import dataclass, replace

from budgets.grant import Amounts, Denied, Grant, Scope, denial
from budgets.limit import Limit


@dataclass(frozen=True, slots=True)
class _Bucket:
    used: float
    at_seconds: float

    def leaked(self, limit: Limit, share: float, now_seconds: float) -> float:
        passed = max(0.0, now_seconds - self.at_seconds)
        return max(0.0, self.used - passed * limit.per_second * share)


class LocalAllowance:
    """Token buckets in memory: `share` of each limit, for at most `tenants` tenants (the longest unused is forgotten).

    All workers together grant at most workers x share of a limit in its period, and as much at once as
    workers x share of a full bucket, or one call each if a call is larger than that.
    """

    def __init__(self, share: float = 0.1, tenants: int = 10_000) -> None:
        self._share = share
        self._most = tenants
        self._buckets: OrderedDict[str, dict[str, _Bucket]] = OrderedDict()

    def decide(self, scope: Scope, amounts: Amounts, now_seconds: float, wall_seconds: float) -> Grant | Denied:
        """Grant or deny without the store. `now_seconds` is monotonic, `wall_seconds` counts from 1970."""
        enforced = [limit for limit in scope.limits if limit.mode == "enforce"]
        for limit in enforced:
            if limit.on_store_error == "closed":
                closed = denial(scope.tenant, limit, amounts, 0, 1.0, wall_seconds)
                return replace(closed, local=True, store_down=True)
        limits = [limit for limit in enforced if limit.on_store_error == "local"]
        used = self._used(scope.tenant, limits, now_seconds)
        waits = [self._wait_seconds(limit, amounts, use) for limit, use in zip(limits, used, strict=True)]
        longest = max(range(len(limits)), key=waits.__getitem__, default=None)
        if longest is not None and waits[longest] > 0:
            limit, use = limits[longest], used[longest]
            resets_at = wall_seconds + use / (limit.per_second * self._share)
            refused = denial(scope.tenant, limit, amounts, use, waits[longest], resets_at)
            return replace(refused, limit=int(limit.capacity * self._share), local=True)
        self._take(scope.tenant, limits, used, amounts, now_seconds)
        return Grant(uuid.uuid4().hex, scope, amounts, local=True)

    def _used(self, tenant: str, limits: list[Limit], now_seconds: float) -> list[float]:
        buckets = self._buckets.get(tenant, {})
        return [
            bucket.leaked(limit, self._share, now_seconds) if (bucket := buckets.get(limit.label)) else 0.0
            for limit in limits
        ]

    def _wait_seconds(self, limit: Limit, amounts: Amounts, used: float) -> float:
        room = max(0.0, limit.capacity * self._share - max(1, amounts.get(limit.dimension, 0)))
        return max(0.0, used - room) / (limit.per_second * self._share)

    def _take(self, tenant: str, limits: list[Limit], used: list[float], amounts: Amounts, now_seconds: float) -> None:
        buckets = self._buckets.setdefault(tenant, {})
        self._buckets.move_to_end(tenant)
        for limit, use in zip(limits, used, strict=True):
            buckets[limit.label] = _Bucket(use + amounts.get(limit.dimension, 0), now_seconds)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
