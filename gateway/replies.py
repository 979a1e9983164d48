"""How long replies are, by tenant and model: seen by this process, and by all gateways of a deployment together.

Rule: a call asks memory only. What is new goes to the store every few seconds, where the counts of all gateways add up
and outlive them; what comes back takes the place of what was known here. Lost news are lost estimates, never charges.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast

from budgets.estimate import Quantile, bin_of
from budgets.scope import Scope
from budgets.script import Script, Step
from gateway.recent import Recent
from gateway.store import Store, StoreError

Key = tuple[str, str]
"""Tenant and model."""

MAX_LEARNED: Final = 10_000
"""Keys that are remembered, some 3 kB each; what was not asked for lately is forgotten first."""
WELL_KNOWN: Final = 128.0
SAMPLED: Final = 0.125
"""Once this many replies are known, one in eight is looked at: a quantile does not need them all."""
UNLEARNED: Final = Quantile()
PATIENCE_SECONDS: Final = 1.0
"""For the store: nobody waits for it, but a gateway that stops."""
AT_ONCE: Final = 256
"""Keys that are told in one round; the others wait for the next."""
UNITS: Final = 64
"""Of one reply in the store."""
FULL_UNITS: Final = 512 * UNITS
KEPT_MS: Final = 30 * 86_400 * 1_000

_ADD = Script.load("gateway", "replies")


@dataclass(slots=True)
class News:
    """What the store does not know yet of one key, in replies by bin. Empty: only the answer is wanted."""

    organisation: str | None
    seen: Counter[int]


class Replies:
    """The quantiles of one process."""

    def __init__(self) -> None:
        self.known: Recent[Key, Quantile] = Recent(MAX_LEARNED)
        self._news: dict[Key, News] = {}

    def quantile(self, key: Key, organisation: str | None = None) -> Quantile:
        """What is known of a key; one that is asked for first is asked of the store soon."""
        known = self.known.get(key)
        if known is None:
            self.known.keep(key, known := UNLEARNED)
            self._noted(key, organisation)
        return known

    def learn(self, key: Key, tokens: int, organisation: str | None = None, *, sampled: bool = False) -> bool:
        """Take in one reply; `sampled`: it was chosen already. Whether so many are known that a sample is enough."""
        known = self.known.get(key) or UNLEARNED
        enough = known.total >= WELL_KNOWN
        if enough and not sampled and random.random() > SAMPLED:
            return enough
        self.known.keep(key, known.observe(tokens))
        self._noted(key, organisation).seen[bin_of(tokens)] += 1
        return enough

    async def exchange(self, store: Store) -> None:
        """Tell the store what is new and take what it knows. A store that is away hears of it the next time."""
        told = {key: self._news.pop(key) for key in list(self._news)[:AT_ONCE]}
        await asyncio.gather(*(self._told(store, key, news) for key, news in told.items()))

    async def _told(self, store: Store, key: Key, news: News) -> None:
        step = adding(key, news)
        try:
            counts = await store.ask(step, PATIENCE_SECONDS)
        except StoreError:
            self._noted(key, news.organisation).seen += news.seen
            return
        later = self._news[key].seen if key in self._news else Counter[int]()
        self.known.keep(key, Quantile.counted({at: counts.get(at, 0.0) + later[at] for at in {*counts, *later}}))

    def _noted(self, key: Key, organisation: str | None) -> News:
        if (news := self._news.get(key)) is None:
            news = self._news[key] = News(organisation, Counter())
            while len(self._news) > MAX_LEARNED:
                self._news.pop(next(iter(self._news)))
        return news


def adding(key: Key, news: News) -> Step[Mapping[int, float]]:
    """Adds the news to what the store has; gives all of it, in replies by bin."""
    tenant, model = key
    name = f"{Scope(tenant, (), organisation=news.organisation).space}:replies:{tenant}/{model}"
    counts = [number for at, seen in news.seen.items() for number in (at, seen * UNITS)]
    return Step(_ADD, (name,), (FULL_UNITS, KEPT_MS, *counts), _replies)


def _replies(reply: object) -> Mapping[int, float]:
    flat = cast("Sequence[bytes | int]", reply)
    pairs = zip(flat[::2], flat[1::2], strict=True)
    return {int(at): int(units) / UNITS for at, units in pairs}
