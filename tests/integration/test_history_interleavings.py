"""Turns of one stored history on two gateways in random order, some of which die.

Whatever happens: of turns that want it at the same time one gets it; what is read is what was appended, in that order;
a turn that nobody ended is never passed over in silence.
"""

import asyncio
import random
from dataclasses import dataclass, field

import pytest

from budgets.script import Step
from gateway import errors, histories
from gateway.embedded import EmbeddedServer
from gateway.errors import Fault
from gateway.histories import Ended, History, Key, Wish
from gateway.metrics import Metrics
from gateway.sessions import SessionLimits
from gateway.store import Store
from gateway.tasks import Tasks
from gateway.texts import Place, Texts
from gateway.vault import Vault
from tests.conftest import PATIENT

KEY = Key(Place("acme"), "chat")
LIMITS = SessionLimits()
VAULT = Vault({"k": b"k" * 32})


async def opened(store: Store, wish: Wish, turn: str) -> History | type[Fault]:
    step = histories.opening(VAULT, KEY, wish, turn)
    try:
        return step.read(await store.run(step.script, step.keys, step.args))
    except Fault as fault:
        return type(fault)


async def ended(store: Store, step: Step[Ended]) -> bool:
    return step.read(await store.run(step.script, step.keys, step.args)).done


@dataclass
class Play:
    """One random run, and what must be true of it. `doubtful`: the last turn was never ended."""

    stores: list[Store]
    generator: random.Random
    stored: list[bytes] = field(default_factory=list)
    running: History | None = None
    late: list[History] = field(default_factory=list)
    doubtful: bool = False
    turns: int = 0
    passed: int = 0

    def expected(self, wish: Wish) -> type[Fault] | None:
        if self.running is not None:
            return errors.HistoryBusy
        if wish.begin:
            return errors.HistoryExists if self.stored else None
        if not self.stored:
            return errors.HistoryNotFound
        if wish.believed not in (None, len(self.stored)):
            return errors.HistoryMoved
        return errors.HistoryUnsettled if self.doubtful and wish.believed is None else None

    async def want(self, count: int) -> None:
        """So many turns begin at the same time, with one wish."""
        believed = self.generator.choice([None, None, len(self.stored), len(self.stored) + 2])
        wish = Wish(begin=True) if self.generator.random() < 0.3 else Wish(believed=believed)
        expected = self.expected(wish)
        names = [f"turn-{self.turns + n}" for n in range(count)]
        self.turns += count
        found = await asyncio.gather(*(opened(self.generator.choice(self.stores), wish, name) for name in names))
        if expected is not None:
            assert set(found) == {expected}
            return
        (got,) = [history for history in found if isinstance(history, History)]
        assert set(found) - {got} <= {errors.HistoryBusy}
        assert list(got.messages) == self.stored
        self.running, self.passed = got, self.passed + 1

    async def end(self) -> None:
        """The turn that runs ends in one of the ways that there are; one that was given up ends late, for nothing."""
        store = self.generator.choice(self.stores)
        if self.late and self.generator.random() < 0.5:
            late = self.late.pop()
            assert not await ended(store, histories.appending(late, VAULT, [b"late"], LIMITS))
        if self.running is None:
            return
        history, self.running = self.running, None
        match self.generator.choice(["append", "append", "append", "undo", "doubt", "die", "delete"]):
            case "append":
                new = [b"%d.%d" % (self.turns, n) for n in range(self.generator.randint(1, 3))]
                assert await ended(store, histories.appending(history, VAULT, new, LIMITS))
                self.stored, self.doubtful = [*self.stored, *new], False
            case "undo":
                assert await ended(store, histories.leaving(history))
                self.doubtful = False
            case "doubt":
                assert await ended(store, histories.leaving(history, doubt=True))
                self.doubtful = bool(self.stored)
            case "die":
                await store.command("HSET", KEY.keys[0], "until", 0)  # as if the lease had run out
                self.late, self.doubtful = [history], True
            case "delete":
                await Texts(store, Metrics()).forget(KEY.place, [KEY.member])
                self.stored, self.doubtful = [], False
                assert not await ended(store, histories.appending(history, VAULT, [b"late"], LIMITS))

    async def settle(self) -> None:
        """One that died and has the history no more cannot write behind the back of those that came after it."""
        if self.running is not None and self.late:
            late = self.late.pop()
            assert not await ended(self.stores[0], histories.holding(late))


@pytest.mark.parametrize("seed", range(20))
async def test_nothing_is_lost_doubled_or_passed_over(valkey: EmbeddedServer, tasks: Tasks, seed: int) -> None:
    stores = [await Store.connect(valkey.url, tasks, PATIENT) for _ in range(2)]
    try:
        await stores[0].command("FLUSHALL")
        play = Play(stores, random.Random(seed))
        for _ in range(60):
            await play.want(play.generator.randint(1, 3))
            await play.settle()
            if play.generator.random() < 0.8:
                play.late = [] if play.running is None else play.late
                await play.end()
        assert play.passed >= 5
    finally:
        for store in stores:
            store.close()


async def test_one_that_died_may_still_end_its_turn_while_nobody_else_has_it(store: Store) -> None:
    """Its lease is over, but nobody has come: the truth is better than a doubt."""
    history = await opened(store, Wish(begin=True), "slow")
    assert isinstance(history, History)
    await store.command("HSET", KEY.keys[0], "until", 0)
    assert await ended(store, histories.appending(history, VAULT, [b"hello"], LIMITS))
    again = await opened(store, Wish(), "next")
    assert isinstance(again, History) and again.messages == (b"hello",)


async def test_a_history_off_the_list_is_gone_while_its_key_is_there(store: Store) -> None:
    history = await opened(store, Wish(begin=True), "first")
    assert isinstance(history, History)
    await ended(store, histories.appending(history, VAULT, [b"hello"], LIMITS))
    await store.command("ZREM", KEY.place.texts[0], KEY.member)
    look = histories.reading(VAULT, KEY)
    with pytest.raises(errors.HistoryNotFound):
        look.read(await store.run(look.script, look.keys, look.args))
    assert await opened(store, Wish(), "second") is errors.HistoryNotFound
    again = await opened(store, Wish(begin=True), "third")
    assert isinstance(again, History) and again.messages == ()


async def test_a_new_history_whose_first_turn_died_is_begun_again(store: Store) -> None:
    assert isinstance(await opened(store, Wish(begin=True), "first"), History)
    assert await opened(store, Wish(begin=True), "second") is errors.HistoryBusy
    await store.command("HSET", KEY.keys[0], "until", 0)
    assert await opened(store, Wish(), "third") is errors.HistoryNotFound
    assert isinstance(await opened(store, Wish(begin=True), "fourth"), History)


async def test_a_turn_is_one_write_however_long_the_history_is(store: Store) -> None:
    history = await opened(store, Wish(begin=True), "t0")
    for number in range(300):
        assert isinstance(history, History) and len(history.messages) == 2 * number
        step = histories.appending(history, VAULT, [b"question", b"answer"], LIMITS)
        assert sum(len(str(part)) for part in step.args) < 600
        assert await ended(store, step)
        history = await opened(store, Wish(), f"t{number + 1}")
