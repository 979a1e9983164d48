"""Tokens of a model to what can be told before they are counted: to bytes, and to tokens of our own encoding.

Rule: a call asks memory only. What is new goes to the store every few seconds, where the sums of all gateways add up
and outlive them; what comes back takes the place of what was known here. Lost news are lost estimates, never charges.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, cast, get_args

from budgets.estimate import LearnedRatio
from budgets.script import Script, Step
from gateway.replies import KEPT_MS, PATIENCE_SECONDS, SAMPLED
from gateway.store import Store, StoreError

To = Literal["bytes", "counted"]
"""To bytes of a prompt that was sent as it came; to tokens as we counted a prompt."""
Sums = tuple[int, int]
"""Tokens of the model, and what they are set against."""

UNLEARNED: Final[Mapping[To, LearnedRatio]] = {
    "bytes": LearnedRatio(),
    "counted": LearnedRatio(100.0, 100.0, window_bytes=100_000.0),
}
_KINDS: Final[tuple[To, ...]] = get_args(To)
_ADD: Final = Script.load("gateway", "ratios")


@dataclass(slots=True)
class News:
    """What the store does not know yet of one model. Nothing: only the answer is wanted."""

    tokens: dict[To, float] = field(default_factory=lambda: dict.fromkeys(_KINDS, 0.0))
    against: dict[To, float] = field(default_factory=lambda: dict.fromkeys(_KINDS, 0.0))

    def add(self, to: To, tokens: float, against: float) -> None:
        self.tokens[to] += tokens
        self.against[to] += against

    @property
    def whole(self) -> Mapping[To, Sums]:
        return {to: (round(self.tokens[to]), round(self.against[to])) for to in _KINDS}


class Ratios:
    """The ratios of one process, by model of the configuration."""

    def __init__(self) -> None:
        self._known: Mapping[To, dict[str, LearnedRatio]] = {"bytes": {}, "counted": {}}
        self._news: dict[str, News] = {}

    def of(self, model: str, to: To) -> LearnedRatio:
        """What is known of a model; of one that is asked for first the store is asked soon."""
        known = self._known[to].get(model)
        if known is None:
            known = self._known[to][model] = UNLEARNED[to]
            self._noted(model)
        return known

    def learn(self, model: str, to: To, against: int, tokens: int, *, sampled: bool = False) -> bool:
        """Take in a prompt of so many bytes, or tokens of ours, that the model's own tokenizer made `tokens` of.

        Once half of what counts is known, one in eight is looked at: a ratio does not need them all. `sampled`: this is
        the one. Gives whether so much is known.
        """
        known = self.of(model, to)
        enough = known.bytes * 2 >= known.window_bytes
        if enough and not sampled and random.random() > SAMPLED:
            return enough
        self._known[to][model] = known.observe(against, tokens)
        self._noted(model).add(to, *known.seen(against, tokens))
        return enough

    async def exchange(self, store: Store) -> None:
        """Tell the store what is new and take what it knows. A store that is away hears of it the next time."""
        told, self._news = self._news, {}
        await asyncio.gather(*(self._told(store, model, news) for model, news in told.items()))

    async def _told(self, store: Store, model: str, news: News) -> None:
        step = adding(model, news.whole)
        try:
            shared = await store.ask(step, PATIENCE_SECONDS)
        except StoreError:
            for to in _KINDS:
                self._noted(model).add(to, news.tokens[to], news.against[to])
            return
        later = self._news[model].whole if model in self._news else {}
        for to, (tokens, against) in shared.items():
            first, (more_tokens, more) = UNLEARNED[to], later.get(to, (0, 0))
            sums = first.tokens + tokens + more_tokens, first.bytes + against + more
            self._known[to][model] = LearnedRatio(*sums, first.window_bytes)

    def _noted(self, model: str) -> News:
        if (news := self._news.get(model)) is None:
            news = self._news[model] = News()
        return news


def adding(model: str, news: Mapping[To, Sums]) -> Step[Mapping[To, Sums]]:
    """Adds the news to what the store has; gives all of it."""
    args: list[str | int] = [KEPT_MS]
    for to, sums in news.items():
        args += (to, int(UNLEARNED[to].window_bytes), *sums)
    return Step(_ADD, (f"kvgate:1:{{_models}}:ratios:{model}",), args, _sums)


def _sums(reply: object) -> Mapping[To, Sums]:
    flat = cast("Sequence[int]", reply)
    return dict(zip(_KINDS, zip(flat[::2], flat[1::2], strict=True), strict=True))
