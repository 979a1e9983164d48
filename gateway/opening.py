"""Step 3 at the store: a session read and a budget reserved, in one round trip.

Rule: a store that is away is not an outage: the session is then not read, and each limit says what happens to the
budget. What was asked for in vain and refused without the store is given back, for the store may have made it all
the same.
"""

from typing import Final

from budgets import ledger
from budgets.allowance import LocalAllowance
from budgets.ledger import Amounts, Denied, Grant, Misdated, Scope
from budgets.script import Step, both
from gateway.backlog import Backlog
from gateway.clock import monotonic, wall
from gateway.sessions import Session
from gateway.store import Store, StoreError

NO_SESSION: Final = Session("", "", "unread")


class Opening:
    """Asks the store. Keeps what each worker knows for the time that it does not answer."""

    def __init__(self, store: Store, backlog: Backlog) -> None:
        self._store = store
        self._backlog = backlog
        self._local = LocalAllowance()
        self._behind_seconds = 0.0  # this machine's clock, behind the store's

    async def opened(
        self, loading: Step[Session] | None, scope: Scope, amounts: Amounts, ceiling: Amounts | None, request_id: str
    ) -> tuple[Session, Grant | Denied, Grant | None]:
        """What the store says of both, in one round trip; what holds without it while it is away.

        Last comes what was asked for in vain, if it was refused without the store.
        """
        if not scope.limits:
            return await self.read(loading), ledger.unlimited(scope, amounts, request_id), None
        session = NO_SESSION
        asked, reserving = ledger.reserving(scope, amounts, wall() + self._behind_seconds, ceiling, request_id)
        try:
            if loading is None:
                found = await self._store.ask(reserving)
            else:
                session, found = await self._store.ask(both(loading, reserving))
            while isinstance(found, Misdated):
                self._behind_seconds = found.now_seconds - wall()
                asked, reserving = ledger.reserving(scope, amounts, found.now_seconds, ceiling, request_id)
                found = await self._store.ask(reserving)
        except StoreError:
            found = self._local.decide(asked, monotonic(), wall())
            return NO_SESSION, found, asked if isinstance(found, Denied) else None
        except BaseException:
            self.undo(asked)  # nobody will hear what the store has made of it
            raise
        if isinstance(found, Grant):
            self._local.heard(found)
        return session, found, None

    async def read_on(self, loading: Step[Session], found: Grant | Denied) -> Session:
        """More of a session, while a grant is held; given back if nobody stays to use it."""
        try:
            return await self.read(loading)
        except BaseException:
            self.undo(found if isinstance(found, Grant) else None)
            raise

    async def read(self, loading: Step[Session] | None) -> Session:
        """The session alone."""
        try:
            return NO_SESSION if loading is None else await self._store.ask(loading)
        except StoreError:
            return NO_SESSION

    def undo(self, lost: Grant | None) -> None:
        """Give back a grant whose answer never came; a refusal does not wait for a store that is slow."""
        if lost is not None:
            self._backlog.add(ledger.settling(lost, {}))

    def ended(self, grant: Grant, used: Amounts) -> None:
        """A call has ended that was granted without the store, or was not."""
        if grant.local:
            self._local.ended(grant, used)
