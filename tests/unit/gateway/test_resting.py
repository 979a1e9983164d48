"""Sessions that wait for their end: the latest call of each, within a bound, on a clock that a test turns."""

import asyncio
import gc
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any, cast
from weakref import ref

import pytest

from gateway import resting
from gateway.call import Call
from gateway.counting import Counter
from gateway.dialects.openai_chat import OpenAIChat
from gateway.resting import Resting
from gateway.service import Service
from gateway.snapshot import Snapshot
from gateway.source import Source
from gateway.store import StoreUnavailable
from gateway.tasks import Tasks
from policies.covering import Cover
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.summary import Wanted
from tests.unit.gateway.samples import caller, model

WANTED = Wanted(Cover(0, 3), b"k" * 16, urgent=False, make=True, replaced_tokens=500)
SERVICE = Service(caller(), model(), (), Counter(len))
SNAPSHOT = cast(Snapshot, object())


def source(session: str, size: int = 100) -> Source:
    call = Call(OpenAIChat(), b"x" * size, "demo")
    policy = SummarizeOlderTurns(idle_at_tokens=100)
    return Source(SNAPSHOT, call, (), SERVICE, policy, session, None, "r", 1.0, {}, 0)


class Records(dict[bytes, str]):
    """Some that tell whether anybody still holds them."""


class Times:
    """A store that knows when sessions were used last, and the time of day; None: it is away."""

    def __init__(self) -> None:
        self.used: dict[str, float] | None = {}
        self.now = 1_000_000.0

    def command(self, *parts: str, key: str) -> "asyncio.Future[object]":
        answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self.used is None:
            answer.set_exception(StoreUnavailable("away"))
        elif parts[0] == "TIME":
            answer.set_result([str(int(self.now)).encode(), b"0"])
        else:
            at = self.used.get(parts[2])
            answer.set_result(None if at is None else str(at * 1000).encode())
        return answer


class House:
    """`made` are sessions that a record was begun for."""

    def __init__(self) -> None:
        self.now, self.made, self.store, self.tasks = 0.0, list[str](), Times(), Tasks()
        self.resting = Resting(
            lambda source, _: self.made.append(source.session),
            lambda: SNAPSHOT,
            cast(Any, self.store),
            self.tasks,
            lambda: self.now,
        )

    async def ended(self) -> None:
        """Once all that is held has had its time."""
        self.now = 1e6
        for _ in range(50):
            await asyncio.sleep(0)


@pytest.fixture
async def house(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    async def at_once(_: float) -> None:
        await real(0)

    real = asyncio.sleep
    monkeypatch.setattr("gateway.resting.asyncio.sleep", at_once)
    built = House()
    yield built
    await built.tasks.close()


async def test_a_session_that_nobody_used_leaves_a_record_once(house: House) -> None:
    house.store.used = {"one": house.store.now - SERVICE.session_limits.idle_seconds}
    house.resting.hold(source("one"), WANTED)
    house.resting.hold(source("one"), WANTED)
    assert (len(house.resting), house.made) == (1, [])
    await house.ended()
    assert (len(house.resting), house.made) == (0, ["one"])


async def test_one_that_was_used_elsewhere_deleted_or_cannot_be_asked_about_leaves_none(house: House) -> None:
    house.store.used = {"used": house.store.now - 5}
    house.resting.hold(source("used"), WANTED)
    house.resting.hold(source("deleted"), WANTED)
    await house.ended()
    house.store.used = None
    house.now = 0.0
    house.resting.hold(source("unknown"), WANTED)
    await house.ended()
    assert (len(house.resting), house.made) == (0, [])


async def test_one_that_became_too_short_waits_no_more(house: House) -> None:
    house.store.used = {"one": 0.0}
    house.resting.hold(source("one"), WANTED)
    house.resting.hold(source("one"), None)
    await house.ended()
    assert house.made == []


async def test_what_waits_is_bounded_and_the_oldest_goes(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resting, "MOST_BYTES", 1_000)
    house.store.used = {"old": 0.0, "new": 0.0, "huge": 0.0}
    house.resting.hold(source("old", 600), WANTED)
    house.resting.hold(source("new", 600), WANTED)
    assert len(house.resting) == 1
    await house.ended()
    assert house.made == ["new"]
    house.now = 0.0
    house.resting.hold(source("huge", 2_000), WANTED)
    assert len(house.resting) == 0


async def test_a_changed_configuration_is_the_one_it_is_made_by(house: House) -> None:
    class Other:
        def service(self, caller: object, name: str) -> Service:
            return SERVICE

    other, made = cast(Snapshot, Other()), list[Source]()
    built = Resting(
        lambda source, _: made.append(source), lambda: other, cast(Any, house.store), house.tasks, lambda: house.now
    )
    house.store.used = {"one": 0.0}
    built.hold(replace(source("one")), WANTED)
    await house.ended()
    assert [each.snapshot for each in made] == [other]


async def test_of_a_session_that_goes_on_only_the_latest_call_is_held(house: House) -> None:
    held = []
    for _ in range(1_000):
        records = Records()
        held.append(ref(records))
        house.resting.hold(replace(source("one"), records=records), WANTED)
    del records
    gc.collect()
    assert sum(each() is not None for each in held) == 1
    assert len(house.resting._due) <= 2 + resting.SPARE
    await house.ended()
    assert house.made == []
    assert held[-1]() is None
