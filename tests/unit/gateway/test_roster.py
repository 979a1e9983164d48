"""What a process knows of the store's tenants, how long it holds, and what it is told."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest

from gateway import roster as roster_module
from gateway.roster import Following, Roster
from gateway.store import StoreUnavailable
from gateway.tenant_book import NOTHING_KNOWN, News, TenantBook
from tests.unit.gateway.records import stored

SECRET = b"s" * 32


class Told:
    """A book that answers what the test says, in turn; an error is raised."""

    def __init__(self, *answers: News | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def news(self, known: str) -> News:
        self.asked.append(known)
        answer = self.answers.pop(0) if self.answers else News(known, "", False, {})
        if isinstance(answer, Exception):
            raise answer
        return answer


def whole(last: str, *names: str) -> News:
    return News(last, "", True, {name: stored(name) for name in names})


def test_a_whole_telling_replaces_everything_and_names_what_is_gone() -> None:
    known = Roster()
    assert set(known.take(whole("1-1", "one", "two"))) == {"one", "two"}
    assert set(known.take(whole("9-1", "two", "three"))) == {"one", "two", "three"}
    assert known.records.keys() == {"two", "three"} and known.known == "9-1"


def test_news_change_what_they_name() -> None:
    known = Roster()
    known.take(whole("1-1", "one", "two"))
    assert set(known.take(News("2-1", "", False, {"one": None, "three": stored("three")}))) == {"one", "three"}
    assert known.records.keys() == {"two", "three"}
    assert list(known.take(News("2-1", "", False, {}))) == []


def test_what_is_known_is_trusted_for_a_time_without_the_store() -> None:
    now = [0.0]
    known = Roster(trusted_seconds=60, clock=lambda: now[0])
    assert not known.trusted and known.age_seconds == float("inf")
    known.take(whole("1-1", "one"))
    now[0] = 1_000.0
    assert known.trusted, "while the last look was answered"
    known.lost()
    assert not known.trusted
    known.take(News("1-1", "", False, {}))
    known.lost()
    now[0] = 1_060.0
    assert known.trusted
    now[0] = 1_060.1
    assert not known.trusted


async def followed(monkeypatch: pytest.MonkeyPatch, told: Told, changed: Callable[[Sequence[str]], None]) -> Roster:
    """A roster after all answers of the book were taken in."""
    monkeypatch.setattr(roster_module, "LOOK_EVERY_SECONDS", 0.0)
    known = Roster()
    task = asyncio.create_task(Following(cast("TenantBook", told), known, SECRET).follow(changed))
    while told.answers:  # noqa: ASYNC110 - it follows without end
        await asyncio.sleep(0)
    for _ in range(20):
        await asyncio.sleep(0)
    task.cancel()
    return known


async def test_changes_are_handed_on_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(roster_module, "AT_ONCE", 2)
    heard: list[Sequence[str]] = []
    await followed(monkeypatch, Told(whole("1-1", *"abcde")), heard.append)
    assert sorted(len(part) for part in heard) == [1, 2, 2]
    assert sorted(name for part in heard for name in part) == [*"abcde"]


async def test_a_store_that_is_away_leaves_what_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    told = Told(whole("1-1", "one"), StoreUnavailable("away"))
    known = Roster()
    following = Following(cast("TenantBook", told), known, SECRET)
    await following.look()
    assert list(await following.look()) == []
    assert known.records.keys() == {"one"} and not known.current
    await following.look()
    assert known.current and told.asked == ["", "1-1", "1-1"]


async def test_a_defect_is_survived_and_everything_is_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    calls: list[Any] = []

    def changed(names: Sequence[str]) -> None:
        calls.append(names)
        if len(calls) == 1:
            raise KeyError("sk-kvg-secret")

    told = Told(whole("1-1", "one"), whole("1-1", "one"))
    known = await followed(monkeypatch, told, changed)
    assert len(calls) == 2 and known.current
    assert told.asked[:2] == [NOTHING_KNOWN, NOTHING_KNOWN]
    assert "KeyError" in caplog.text and "sk-kvg" not in caplog.text


async def test_another_secret_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    told = Told(News("1-1", "not-ours", True, {}), News("1-1", "not-ours", False, {}))
    following = Following(cast("TenantBook", told), Roster(), SECRET)
    await following.look()
    await following.look()
    assert caplog.text.count("made with another KVGATE_SECRET") == 1
