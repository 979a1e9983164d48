"""JSON made shorter that stays JSON."""

import json

import pytest

from policies.json_ladder import LADDER, parse, render

ROWS = json.dumps([{"id": number, "name": f"row {number}", "note": "n" * 500} for number in range(800)], indent=2)


def test_the_first_step_only_takes_out_white_space() -> None:
    assert json.loads(render(parse(ROWS), 0)) == json.loads(ROWS)


def test_numbers_keep_their_digits() -> None:
    text = '{"a":1.10,"b":1e400,"c":12345678901234567890,"d":-0.0,"e":true,"f":null,"g":{},"h":[]}'
    assert render(parse(text), 0) == text


def test_every_step_is_json_and_none_is_longer_than_the_one_before() -> None:
    sizes = [len(render(parse(ROWS), level)) for level in range(len(LADDER))]
    assert sizes == sorted(sizes, reverse=True) and sizes[-1] < 200
    for level in range(len(LADDER)):
        json.loads(render(parse(ROWS), level))


def test_arrays_keep_their_ends_and_say_what_is_missing() -> None:
    kept = json.loads(render(parse(json.dumps(list(range(100)))), len(LADDER) - 3))
    assert kept == [0, "[kvgate: 98 of 100 items left out, not recoverable]", 99]


def test_one_item_is_not_left_out_for_a_marker() -> None:
    assert render(parse("[1,2,3]"), len(LADDER) - 2) == "[1,2,3]"


def test_keys_stay_and_long_strings_keep_their_ends() -> None:
    value = {f"key {number}": "a" * 1000 + "z" for number in range(50)}
    kept = json.loads(render(parse(json.dumps(value)), len(LADDER) - 1))
    assert kept.keys() == value.keys()
    assert all(text.startswith("a") and text.endswith("z") and "characters left out" in text for text in kept.values())


def test_what_is_nested_beyond_reason_is_left_out_or_no_json() -> None:
    deep = "[" * 100 + "1" + "]" * 100
    assert "a nested part left out" in render(parse(deep), 0)
    with pytest.raises(ValueError, match="nested too deeply"):
        parse("[" * 200_000 + "]" * 200_000)


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "[1,]", "{'a': 1}", "[INFO] log"])
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text)
