"""`GET /v1/usage`: how the caller's own limits stand.

Rule: a caller sees the limits of its key, its tenant and its organisation, and of the session that it names, and
nothing of anybody else's. An answer may be a second old, so that whoever asks without end does not keep the store busy.
"""

from typing import Final

import msgspec

from budgets.grant import Misdated
from budgets.limit import units
from budgets.scope import Scope
from budgets.statement import Account, stating
from gateway.clock import Clock, monotonic, wall
from gateway.denials import moment
from gateway.errors import RateLimited, StoreDown
from gateway.scoping import levels
from gateway.store import Store, StoreError
from gateway.tenants import Caller

FRESH_SECONDS: Final = 1.0
MAX_TOLD: Final = 10_000
MOST_ASKED: Final = 20
"""Questions to the store in a second for one key: a client may name ever new sessions."""
RETRY: Final = ((b"retry-after", b"1"),)


class Statements:
    """Tells callers how their limits stand; remembers the last answer to each key."""

    def __init__(self, store: Store, clock: Clock = monotonic) -> None:
        self._store = store
        self._clock = clock
        self._told: dict[tuple[str, str, str | None], tuple[float, bytes]] = {}
        self._asked: dict[tuple[str, str], tuple[int, int]] = {}

    async def of(self, caller: Caller, session: str | None = None) -> bytes:
        """The answer's body, with one session's limits if its id is given. Raises `StoreDown` and `RateLimited`."""
        if not caller.may.session.budgets:
            session = None
        asked = (caller.tenant, caller.key, session)
        known = self._told.get(asked)
        if known is not None and self._clock() - known[0] < FRESH_SECONDS:
            return known[1]
        self._count((caller.tenant, caller.key))
        try:
            found = await accounts(self._store, caller, session)
        except StoreError:
            raise StoreDown("The budgets cannot be read now.", headers=RETRY) from None
        body = msgspec.json.encode({"object": "list", "data": [line(each) for each in found]})
        if len(self._told) >= MAX_TOLD:  # keys come and go
            self._told.clear()
        self._told[asked] = self._clock(), body
        return body

    def _count(self, key: tuple[str, str]) -> None:
        second = int(self._clock())
        last, asked = self._asked.get(key, (second, 0))
        if last == second and asked >= MOST_ASKED:
            raise RateLimited("Too many questions about budgets; ask again in a second.", headers=RETRY)
        if len(self._asked) >= MAX_TOLD:
            self._asked.clear()
        self._asked[key] = second, asked + 1 if last == second else 1


async def accounts(store: Store, caller: Caller, session: str | None = None) -> tuple[Account, ...]:
    """How every limit above the session stands, and those of one session. Raises `StoreError`."""
    scope = Scope(caller.tenant, (), organisation=caller.may.organisation)
    for owner, limits in levels(caller, session):
        scope = scope.joined_by(limits, owner)
    return await stated(store, scope)


async def stated(store: Store, scope: Scope) -> tuple[Account, ...]:
    """How the limits of a scope stand. Raises `StoreError`."""
    found: tuple[Account, ...] | Misdated = Misdated(wall()) if scope.limits else ()
    while isinstance(found, Misdated):
        step = stating(scope, found.now_seconds)
        found = await store.ask(step)
    return found


def line(account: Account) -> dict[str, object]:
    """One limit as JSON."""
    limit = account.terms.limit
    weights = {} if limit.weighing is None else {"weights": limit.weighing.told}
    return weights | {
        "object": "limit",
        "name": limit.label,
        "scope": account.terms.owner.label,
        "dimension": limit.dimension,
        "model": limit.model,
        "kind": limit.kind,
        "mode": limit.mode,
        "limit": units(limit.dimension, limit.capacity),
        "used": units(limit.dimension, account.used),
        "reserved": units(limit.dimension, account.reserved),
        "remaining": units(limit.dimension, account.remaining),
        "resets_at": moment(account.resets_at),
    }
