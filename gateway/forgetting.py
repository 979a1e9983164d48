"""Everything that the store has of a session goes with it: when a client deletes it, and when others take its place.

Rule: what is charged stays, and what other sessions share stays for them.
"""

from collections.abc import Sequence

from gateway.errors import SessionNotFound, StoreDown
from gateway.histories import member_of
from gateway.identity import named
from gateway.originals import Originals
from gateway.recalled import Recollections
from gateway.sessions import Sessions
from gateway.statements import RETRY
from gateway.store import StoreError
from gateway.summaries import Summaries
from gateway.tenants import Caller
from gateway.texts import Place, Texts


class Forgetting:
    """Forgets sessions, one on demand or those that a save took off the list."""

    def __init__(
        self,
        sessions: Sessions,
        texts: Texts,
        originals: Originals,
        summaries: Summaries,
        recollections: Recollections,
    ) -> None:
        self._sessions = sessions
        self._texts = texts
        self._originals = originals
        self._summaries = summaries
        self._recollections = recollections

    async def session(self, caller: Caller, id: str) -> None:
        """Delete a session of the caller's tenant. Raises `SessionNotFound` or `StoreDown`."""
        kept = named(id)
        place, found = Place(caller.tenant, caller.may.organisation), False
        try:
            if kept is not None:
                found = self._recollections.forget(caller.tenant, kept)
                found |= await self._sessions.delete(caller.tenant, kept, caller.may.organisation)
                found |= await self._texts.forget(place, [member_of(kept)])
                found |= await self._originals.forget(place, kept)
                found |= await self._summaries.forget(place, kept)
        except StoreError:
            raise StoreDown("The sessions cannot be reached now.", headers=RETRY) from None
        if not found:
            raise SessionNotFound("There is no such session.")

    async def evicted(self, place: Place, ids: Sequence[str], *, histories: bool = True) -> None:
        """Free the memory of sessions that had to make room, and of their histories. Raises `StoreError`."""
        if ids:
            await self._sessions.forget(place.tenant, ids, place.organisation)
            if histories:
                await self._texts.forget(place, [member_of(id) for id in ids])
