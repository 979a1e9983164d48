"""What one process remembers of replies, and that it stays small."""

import pytest

from gateway import replies as sharing
from gateway.replies import AT_ONCE, News, Replies, adding


def test_what_is_learned_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharing, "MAX_LEARNED", 2)
    known = Replies()
    for key in ("a", "b", "c", "b"):
        known.learn((key, "m"), 5)
    assert known.known.weight <= 2
    assert known.quantile(("b", "m")).total == 2
    assert set(known._news) == {("b", "m"), ("c", "m")}


def test_one_in_eight_is_enough_once_many_are_known() -> None:
    known = Replies()
    for _ in range(1_128):
        known.learn(("a", "m"), 5)
    counted = sum(known._news["a", "m"].seen.values())
    assert 128 + 60 < counted < 128 + 250


async def test_a_round_tells_no_more_than_so_many() -> None:
    known = Replies()
    for at in range(AT_ONCE + 3):
        known.learn((f"t{at}", "m"), 5)

    class Store:
        async def ask(self, *_: object) -> dict[int, float]:
            return {}

    await known.exchange(Store())  # type: ignore[arg-type]
    assert len(known._news) == 3


def test_the_store_is_told_only_what_is_new() -> None:
    known = Replies()
    known.learn(("acme", "org/model:1"), 100)
    known.learn(("acme", "org/model:1"), 100)
    step = adding(("acme", "org/model:1"), known._news["acme", "org/model:1"])
    assert step.keys == ("kvgate:1:{acme}:replies:acme/org/model:1",)
    assert list(step.args[2:]) == [27, 128]
    assert list(adding(("acme", "m"), News(None, type(known._news["acme", "org/model:1"].seen)())).args[2:]) == []
