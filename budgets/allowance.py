"""What a worker may grant by itself while the ledger cannot be reached.

Rule: each limit says what happens then. `open` passes, `closed` refuses, `local` passes a stated share of the limit in
this worker, so that an outage of the store is neither an outage of the service nor free for all.
"""

import uuid
from collections import OrderedDict
from dataclasses import dataclass, replace

from budgets.grant import Amounts, Denied, Grant, denial
from budgets.limit import Limit
from budgets.scope import Scope, Terms


@dataclass(frozen=True, slots=True)
class _Bucket:
    used: float
    at_seconds: float

    def leaked(self, limit: Limit, share: float, now_seconds: float) -> float:
        passed = max(0.0, now_seconds - self.at_seconds)
        return max(0.0, self.used - passed * limit.per_second * share)


class LocalAllowance:
    """Token buckets in memory: `share` of each limit, at most `buckets` of them (the longest unused is forgotten).

    A quota is a bucket that refills as evenly as its windows follow one another; calls at once are not counted.

    All workers together grant at most workers x share of a limit in its period, and as much at once as
    workers x share of a full bucket, or one call each if a call is larger than that.
    """

    def __init__(self, share: float = 0.1, buckets: int = 10_000) -> None:
        self._share = share
        self._most = buckets
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def decide(self, scope: Scope, amounts: Amounts, now_seconds: float, wall_seconds: float) -> Grant | Denied:
        """Grant or deny without the store. `now_seconds` is monotonic, `wall_seconds` counts from 1970."""
        standing = scope.standing(wall_seconds)
        enforced = [terms for terms in standing.terms if terms.limit.mode == "enforce"]
        for terms in enforced:
            if terms.limit.on_store_error == "closed":
                closed = denial(scope.tenant, terms, amounts, 0, 1.0, wall_seconds)
                return replace(closed, local=True, store_down=True)
        local = [terms for terms in enforced if terms.limit.on_store_error == "local" and terms.limit.kind != "slots"]
        used = self._used(scope.space, local, now_seconds)
        waits = [self._wait_seconds(terms.limit, amounts, use) for terms, use in zip(local, used, strict=True)]
        longest = max(range(len(local)), key=waits.__getitem__, default=None)
        if longest is not None and waits[longest] > 0:
            terms, use = local[longest], used[longest]
            resets_at = wall_seconds + use / (terms.limit.per_second * self._share)
            refused = denial(scope.tenant, terms, amounts, use, waits[longest], resets_at)
            return replace(refused, limit=int(terms.limit.capacity * self._share), local=True, kind="rate")
        self._take(scope.space, local, used, amounts, now_seconds)
        return Grant(uuid.uuid4().hex, scope, amounts, local=True, standing=standing, at_seconds=wall_seconds)

    def _used(self, tree: str, local: list[Terms], now_seconds: float) -> list[float]:
        buckets = [self._buckets.get((tree, _name(terms))) for terms in local]
        return [
            bucket.leaked(terms.limit, self._share, now_seconds) if bucket else 0.0
            for terms, bucket in zip(local, buckets, strict=True)
        ]

    def _wait_seconds(self, limit: Limit, amounts: Amounts, used: float) -> float:
        room = max(0.0, limit.capacity * self._share - max(1, amounts.get(limit.dimension, 0)))
        return max(0.0, used - room) / (limit.per_second * self._share)

    def _take(self, tree: str, local: list[Terms], used: list[float], amounts: Amounts, now_seconds: float) -> None:
        for terms, use in zip(local, used, strict=True):
            name = tree, _name(terms)
            self._buckets[name] = _Bucket(use + amounts.get(terms.dimension, 0), now_seconds)
            self._buckets.move_to_end(name)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)


def _name(terms: Terms) -> str:
    """The bucket's, whatever window is open."""
    return f"{terms.owner.prefix}{terms.limit.label}"
