"""Long arrays of JSON cut to their first and last items: what stays, what is said of the rest, where it is no case."""

import json
from typing import Any

import pytest

from policies.conversation import Message
from policies.json_rows import fitting, rows
from policies.trim_search import Fit, fit
from policies.trimmed_text import render
from tests.unit.policies.conversations import Counter, count

ITEMS = [{"id": number, "name": f"item {number}", "tags": ["a", "b"]} for number in range(300)]
AROUND = {
    "array": ITEMS,
    "object": {"total": 300, "rows": ITEMS, "next": None},
    "deep": {"data": {"user": {"id": 7, "edges": ITEMS}}, "errors": []},
}


def fitted(value: object, budget: int = 600, handle: str = "", **how: Any) -> Fit:
    text = json.dumps(value, ensure_ascii=False, **how)
    message = Message("tool", b"", count(text) + 4, text)
    found = fit(message, budget, 0.6, count, handle)
    assert found is not None
    assert found.text == render(text, found.trim)
    assert count(found.text) <= found.tokens <= budget
    return found


def array_of(value: Any) -> list[Any]:
    """The array, wherever it is."""
    while isinstance(value, dict):
        value = value.get("rows") or value.get("edges") or value.get("data") or value["user"]
    assert isinstance(value, list)
    return value


@pytest.mark.parametrize("shape", AROUND)
@pytest.mark.parametrize("indent", [None, 2])
def test_first_and_last_items_stay_whole(shape: str, indent: int | None) -> None:
    found = fitted(AROUND[shape], indent=indent)
    (_, head), (tail, stop) = found.trim.spans
    kept = array_of(json.loads(found.text))
    marker = f"[kvgate: {tail - head} of 300 items left out, not recoverable]"
    assert (found.trim.form, stop) == ("rows", 300)
    assert kept == [*ITEMS[:head], marker, *ITEMS[tail:]]


@pytest.mark.parametrize("shape", AROUND)
def test_what_stands_around_the_array_stays(shape: str) -> None:
    kept = json.loads(fitted(AROUND[shape]).text)
    array_of(kept)[:] = []
    bare = json.loads(json.dumps(AROUND[shape]))
    array_of(bare)[:] = []
    assert kept == bare


def test_the_room_is_used() -> None:
    assert count(fitted(ITEMS).text) > 0.9 * 600


def test_the_head_gets_its_share() -> None:
    (_, head), (tail, stop) = fitted(ITEMS).trim.spans
    assert 1.2 < head / (stop - tail) < 1.9


def test_a_handle_stands_once() -> None:
    handle = "kvo_" + "a" * 16
    shown = {shape: fitted(value, handle=handle).text for shape, value in AROUND.items()}
    assert [text.count(handle) for text in shown.values()] == [1, 1, 1]
    assert json.loads(shown["deep"])["kvgate_original"] == handle


def test_a_field_named_as_ours_is_left_alone() -> None:
    kept = json.loads(fitted({"kvgate_original": "theirs", "rows": ITEMS}, handle="kvo_" + "a" * 16).text)
    assert kept["kvgate_original"] == "theirs"
    assert any("kvo_" in str(item) for item in kept["rows"])


def test_what_is_kept_is_counted_once() -> None:
    text, counted = json.dumps(ITEMS), Counter()
    found = fit(Message("tool", b"", count(text) + 4, text), 600, 0.6, counted)
    assert found is not None
    assert counted.characters < 1.3 * len(found.text)


def test_an_item_beyond_all_room_is_not_counted() -> None:
    text, counted = json.dumps(["x" * 500_000, *range(600)]), Counter()
    fit(Message("tool", b"", count(text) + 4, text), 100, 0.6, counted)
    assert counted.characters < 20_000


@pytest.mark.parametrize(
    "value",
    [
        [{"body": "word " * 400}] * 12,  # few items fit: they are made shorter themselves
        [1, 2, 3],
        {"a": ITEMS, "b": ITEMS[:290]},  # what makes it long is not one array
        {f"key {number}": number for number in range(900)},
        "a string",
        7,
    ],
)
def test_what_is_no_long_array_is_left_to_the_ladder(value: object) -> None:
    text = json.dumps(value)
    found = fit(Message("tool", b"", count(text) + 4, text), 600, 0.6, count)
    assert found is None or found.trim.form != "rows"


@pytest.mark.parametrize("text", ["[1,", "[NaN, 1]", '["\ud83d"]', "[" * 100_000, '{"a":' * 100_000])
def test_what_cannot_be_read_fast_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="not JSON"):
        rows(text)


def test_no_item_fits_no_room() -> None:
    found = rows(json.dumps(ITEMS))
    assert found is not None
    assert fitting(found.items, 0, 0.25, count) == (0, 0)
    assert fitting((), 100, 0.25, count) == (0, 0)
