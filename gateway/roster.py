"""The tenants of the store as this process knows them, and the task that keeps them up to date.

Rule: requests read what is here and never wait for the store. What changed arrives within a second; while the store is
away the last known state holds, for a time that has an end.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final

from gateway.clock import Clock, monotonic
from gateway.keys import mark_of
from gateway.logs import log
from gateway.store import StoreError
from gateway.tenant_book import NOTHING_KNOWN, News, TenantBook
from gateway.tenant_record import StoredTenant, organisation_of

LOOK_EVERY_SECONDS: Final = 0.4
AT_ONCE: Final = 200
"""Tenants that are taken up in one turn of the event loop."""


class Roster:
    """Records by tenant. `trusted_seconds`: how long they hold when nothing is heard from the store."""

    def __init__(self, trusted_seconds: float = 3600.0, clock: Clock = monotonic) -> None:
        self.records: dict[str, StoredTenant] = {}
        self.known = NOTHING_KNOWN
        self.current = False  # the last look at the store was answered
        self._trusted_seconds = trusted_seconds
        self._clock = clock
        self._heard_at: float | None = None

    @property
    def tenants(self) -> int:
        """How many there are; organisations aside."""
        return sum(organisation_of(name) is None for name in self.records)

    @property
    def age_seconds(self) -> float:
        """How old what is known may be; without end until the first answer."""
        return float("inf") if self._heard_at is None else self._clock() - self._heard_at

    @property
    def trusted(self) -> bool:
        """Whether what is known still holds."""
        return self.current or self.age_seconds <= self._trusted_seconds

    def take(self, news: News) -> Sequence[str]:
        """Take in what the store told; the names of tenants that changed."""
        self._heard_at, self.current, self.known = self._clock(), True, news.last
        gone = [name for name in self.records if name not in news.changed] if news.whole else []
        for name in (*gone, *[name for name, record in news.changed.items() if record is None]):
            self.records.pop(name, None)
        self.records.update({name: record for name, record in news.changed.items() if record is not None})
        return (*gone, *news.changed)

    def lost(self) -> None:
        """The store did not answer."""
        self.current = False

    def doubt(self) -> None:
        """What was told may not have been taken in as a whole: read everything again."""
        self.lost()
        self.known = NOTHING_KNOWN


class Following:
    """Keeps a roster up to date."""

    def __init__(self, book: TenantBook, roster: Roster, secret: bytes) -> None:
        self._book = book
        self._roster = roster
        self._mark = mark_of(secret)
        self._warned_of = ""

    async def follow(self, changed: Callable[[Sequence[str]], None]) -> None:
        """Until cancelled. `changed(names)` hears of every tenant that is another now, of some at a time."""
        while True:
            await asyncio.sleep(LOOK_EVERY_SECONDS)
            try:
                names = await self.look()
                for at in range(0, len(names), AT_ONCE):
                    changed(names[at : at + AT_ONCE])
                    await asyncio.sleep(0)
            except Exception as defect:  # noqa: BLE001 - a defect must not end the watch over revoked keys
                self._roster.doubt()
                self._say_once(f"what the store tells of tenants cannot be taken in: {type(defect).__name__}")

    async def look(self) -> Sequence[str]:
        """Ask the store once; the tenants that changed. One that is away changes nothing but how old the state is."""
        try:
            news = await self._book.news(self._roster.known)
        except StoreError as error:
            self._say_once(f"tenants of the store cannot be read: {type(error).__name__}")
            self._roster.lost()
            return ()
        other = bool(news.mark) and news.mark != self._mark
        self._say_once("keys of the store were made with another KVGATE_SECRET: they do not work here" if other else "")
        return self._roster.take(news)

    def _say_once(self, warning: str) -> None:
        if warning and warning != self._warned_of:
            log(logging.WARNING, warning)
        self._warned_of = warning
