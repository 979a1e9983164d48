"""What a worker may grant by itself while the ledger cannot be reached.

Rule: each limit says what happens then. `open` passes, `closed` refuses, `local` lets this worker go on with a stated
share of the limit, as full as the limit was when the ledger last told of it. So an outage of the store is neither an
outage of the service nor free for all, and what has been used up stays used up.
"""

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from msgspec import structs

from budgets.grant import Denied, Grant, denial
from budgets.lease import Amounts, taken
from budgets.limit import Kind, Limit
from budgets.scope import Scope, Terms

RETRY_SECONDS: Final = 10.0
"""When a call may try again whose limit has no more in this worker: by then the ledger may be back."""
MOST_HEARD: Final = 2_000
"""Grants that are remembered; after so many in a row without one of our own the ledger is back for good."""


@dataclass(frozen=True, slots=True)
class _Bucket:
    """A share of a limit: parts in use at a moment of the monotonic clock."""

    used: float
    at_seconds: float

    def leaked(self, limit: Limit, share: float, now_seconds: float) -> float:
        """What is in use now; what a quota has given does not come back within its window."""
        if limit.kind == "quota":
            return self.used
        passed = max(0.0, now_seconds - self.at_seconds)
        return max(0.0, self.used - passed * limit.per_second * share)


@dataclass(frozen=True, slots=True)
class _Heard:
    """What the ledger said was in use of a limit, in parts, and when (wall time)."""

    used: float
    at_seconds: float


class LocalAllowance:
    """Buckets in memory: `share` of each limit, at most `buckets` of them (the longest unused is forgotten).

    All workers together grant at most workers x share of what was left of a limit, and of what flows back meanwhile;
    of calls at once workers x share, at least one each, beside those that ran already. A call that is larger than
    a whole share passes where none of it is in use.
    """

    def __init__(self, share: float = 0.1, buckets: int = 10_000) -> None:
        self._share = share
        self._most = buckets
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()
        self._running: dict[str, set[str]] = {}
        self._grants: dict[int, Grant] = {}
        self._known: Mapping[str, _Heard] | None = None
        self._since = 0  # grants of the ledger since the last without it

    def heard(self, grant: Grant) -> None:
        """The ledger has granted this: remember how its limits stood. What was granted without it is in there soon."""
        self._grants[id(grant.scope)] = grant
        if len(self._grants) > MOST_HEARD:
            del self._grants[next(iter(self._grants))]
        self._known = None
        if self._buckets:
            self._forget(grant)

    def _forget(self, grant: Grant) -> None:
        """What the ledger has told of begins anew, and nothing else: it may answer now and then only."""
        self._since += 1
        for terms in grant.stands.terms:
            self._buckets.pop(_name(grant.scope, terms), None)
        if self._since > MOST_HEARD:
            self._buckets.clear()

    def decide(
        self,
        asked: Grant,
        now_seconds: float,
        wall_seconds: float,
    ) -> Grant | Denied:
        """Grant or deny what the ledger was asked for. `now_seconds` is monotonic, `wall_seconds` counts from 1970.

        The grant keeps its id: nobody knows whether the ledger has made it.
        """
        self._since = 0
        enforced = [terms for terms in asked.stands.terms if terms.limit.mode == "enforce"]
        for terms in enforced:
            if terms.limit.on_store_error == "closed":
                closed = denial(asked, terms, 0, 1.0, wall_seconds)
                return replace(closed, local=True, store_down=True)
        local = [terms for terms in enforced if terms.limit.on_store_error == "local"]
        return self._full(asked, local, now_seconds, wall_seconds) or self._granted(
            asked, local, now_seconds, wall_seconds
        )

    def ended(self, grant: Grant, used: Amounts) -> None:
        """A local grant has ended: its places are free, and what it used stands for what it was expected to."""
        for terms in grant.stands.terms:
            bucket = _name(grant.scope, terms)
            if terms.limit.kind == "slots":
                if running := self._running.get(bucket):
                    running.discard(grant.id)
                    if not running:
                        del self._running[bucket]
            elif (held := self._buckets.get(bucket)) is not None:
                difference = terms.limit.parts_of(used) - _wanted(grant, terms)
                self._buckets[bucket] = replace(held, used=max(0.0, held.used + difference))

    def _full(self, asked: Grant, local: list[Terms], now: float, wall: float) -> Denied | None:
        """The refusal with the longest wait, if there is one."""
        refusals = [(wait, terms) for terms in local if (wait := self._wait_seconds(asked, terms, now, wall)) > 0]
        if not refusals:
            return None
        wait, terms = max(refusals, key=lambda refusal: refusal[0])
        capacity = self._capacity(terms.limit)
        if terms.limit.kind == "slots":
            used, resets_at = float(len(self._running.get(_name(asked.scope, terms), ()))), wall
        else:
            used = self._used(asked.scope, terms, now, wall)
            back = terms.limit.per_second * self._share
            resets_at = terms.window.ends_at if terms.window is not None else wall + used / back
        refused = denial(asked, terms, used, wait, resets_at)
        kind: Kind = "slots" if terms.limit.kind == "slots" else "rate"  # worth another try: no quota is spent
        return replace(refused, limit=int(capacity), local=True, kind=kind)

    def _wait_seconds(self, asked: Grant, terms: Terms, now: float, wall: float) -> float:
        limit, capacity = terms.limit, self._capacity(terms.limit)
        if limit.kind == "slots":
            return 1.0 if len(self._running.get(_name(asked.scope, terms), ())) >= capacity else 0.0
        wanted = _wanted(asked, terms)
        excess = self._used(asked.scope, terms, now, wall) - max(0.0, capacity - max(1, wanted))
        if excess <= 0:
            return 0.0
        if terms.window is not None:
            return max(1.0, min(RETRY_SECONDS, terms.window.ends_at - wall))
        return min(RETRY_SECONDS, excess / (limit.per_second * self._share))

    def _granted(self, asked: Grant, local: list[Terms], now: float, wall: float) -> Grant:
        for terms in local:
            bucket = _name(asked.scope, terms)
            if terms.limit.kind == "slots":
                self._running.setdefault(bucket, set()).add(asked.id)
                continue
            used = self._used(asked.scope, terms, now, wall)
            self._buckets[bucket] = _Bucket(used + _wanted(asked, terms), now)
            self._buckets.move_to_end(bucket)
        while len(self._buckets) > self._most:
            self._buckets.popitem(last=False)
        return structs.replace(asked, local=True)

    def _capacity(self, limit: Limit) -> float:
        share = limit.capacity * self._share
        return max(1.0, float(int(share))) if limit.kind == "slots" else share

    def _used(self, scope: Scope, terms: Terms, now_seconds: float, wall_seconds: float) -> float:
        """Parts of this worker's share that are in use; at first, as large a share as the ledger last told of."""
        held = self._buckets.get(_name(scope, terms))
        if held is not None:
            return held.leaked(terms.limit, self._share, now_seconds)
        if (known := self._heard_of(_name(scope, terms))) is None:
            return 0.0
        whole = _Bucket(known.used, known.at_seconds).leaked(terms.limit, 1.0, wall_seconds)
        return whole * self._share

    def _heard_of(self, bucket: str) -> _Heard | None:
        """The latest that any grant told of a limit. Gathered when it is first asked for, which is in an outage."""
        if self._known is None:
            known: dict[str, _Heard] = {}
            for grant in sorted(self._grants.values(), key=lambda grant: grant.at_seconds):
                for terms, in_use in grant.stood.each if grant.stood is not None else ():
                    known[_name(grant.scope, terms)] = _Heard(in_use / terms.scale, grant.at_seconds)
            self._known = known
        return self._known.get(bucket)


def _name(scope: Scope, terms: Terms) -> str:
    """A bucket in this process; a quota has one for each window."""
    return f"{scope.space}{terms.bucket}"


def _wanted(asked: Grant, terms: Terms) -> int:
    """In the dimension's own parts, as the ledger was asked."""
    return taken(terms, asked.amounts, asked.most) // terms.scale
