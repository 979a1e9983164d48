"""Arguments that engines can parse, whatever the model wrote."""

import json

import pytest

from policies.arguments import KEY, is_object, mended


@pytest.mark.parametrize("arguments", ["{}", ' {"a": 1}', '{"a": {"b": ["\\ud83d"]}}'])
def test_an_object_stays_as_it_is(arguments: str) -> None:
    assert is_object(arguments)
    assert mended(arguments) == arguments


@pytest.mark.parametrize("arguments", ['{"value": ', "[1]", '"text"', "null", '{"a": NaN}', "look here", "[" * 9000])
def test_what_is_no_object_goes_into_one(arguments: str) -> None:
    assert not is_object(arguments)
    assert json.loads(mended(arguments)) == {KEY: arguments}
    assert mended(mended(arguments)) == mended(arguments)


def test_nothing_is_an_empty_object() -> None:
    assert mended("") == mended(" \n") == "{}"


def test_lone_surrogates_are_replaced() -> None:
    assert mended('{"a": "\ud83d"}') == '{"a": "\ufffd"}'
    assert mended("\ud83d").encode()
