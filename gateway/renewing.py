"""Leases of calls that run for long: renewed before they run out, for as long as this process serves the call.

Rule: a lease is for workers that die. While one lives, what its call holds stays held: its slot of calls at once, and
what was reserved. A call that ends within a round costs nothing here.
"""

import asyncio
from typing import Final

from budgets import ledger
from gateway.outstanding import Outstanding
from gateway.store import Store, StoreError

ROUND_SECONDS: Final = 300.0
"""A call is renewed from its second round on, so at least five minutes before its lease of fifteen runs out."""


class Renewing:
    """Looks at the calls in flight now and then."""

    def __init__(self, store: Store, outstanding: Outstanding) -> None:
        self._store = store
        self._outstanding = outstanding
        self._before: frozenset[str] = frozenset()

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(ROUND_SECONDS)
            await self.round()

    async def round(self) -> None:
        """Renew what ran a round ago and still does. A store that is away is asked again in the next."""
        for id in self._before:
            if (grant := self._outstanding.running(id)) is not None and grant.scope.limits:
                step = ledger.extending(grant, {})
                try:
                    await self._store.run(step.script, step.keys, step.args)
                except StoreError:
                    break
        self._before = self._outstanding.ids
