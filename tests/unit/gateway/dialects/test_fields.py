"""Owned fields are set where they stand; every other byte leaves as it came."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.fields import edited, top_level
from gateway.errors import InvalidRequest

BODY = b'{ "model" : "demo",\n "messages":[{"role":"user","content":"a \\"model\\": b"}] , "n":1}'


def present(body: bytes) -> dict[str, bytes]:
    return {name: body[span.start : span.stop] for name, span in top_level(body).items()}


def test_spans_are_those_of_the_values() -> None:
    assert present(BODY) == {
        "model": b'"demo"',
        "messages": b'[{"role":"user","content":"a \\"model\\": b"}]',
        "n": b"1",
    }


def test_nothing_to_do_gives_the_same_object() -> None:
    assert edited(BODY, {}, {"model": b""}) is BODY


def test_a_new_field_goes_in_front() -> None:
    assert edited(BODY, {"cache_salt": b'"x"'}, {}) == b'{"cache_salt":"x",' + BODY[1:]


def test_a_field_that_was_sent_is_replaced_in_its_place() -> None:
    assert edited(BODY, {"model": b'"other"'}, {"model": b""}) == BODY.replace(b'"demo"', b'"other"')


@pytest.mark.parametrize("name", ["model", "messages", "n"])
def test_a_removed_field_leaves_valid_json_and_the_rest(name: str) -> None:
    wanted = json.loads(BODY)
    del wanted[name]
    assert json.loads(edited(BODY, {name: None}, {name: b""})) == wanted


def test_a_field_sent_twice_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="`model` occurs more than once"):
        top_level(b'{"model":"a","n":1,"model":"b"}')


def test_a_field_sent_twice_under_an_escape_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="`model` occurs more than once"):
        top_level(b'{"model":"a","mod\\u0065l":"bb"}')


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(
    fields=st.dictionaries(st.text(min_size=1, max_size=8), JSON, min_size=1, max_size=6),
    changes=st.dictionaries(st.text(min_size=1, max_size=8), st.none() | JSON, max_size=4),
    spaces=st.sampled_from([None, 1, 3]),
    ascii_only=st.booleans(),
)
def test_editing_equals_editing_the_parsed_object(
    fields: dict[str, object], changes: dict[str, object], spaces: int | None, ascii_only: bool
) -> None:
    body = json.dumps(fields, indent=spaces, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")
    raw = {name: None if value is None else json.dumps(value).encode() for name, value in changes.items()}
    quoted = {name: value for name, value in raw.items() if json.dumps(name) == f'"{name}"'}
    wanted = {name: value for name, value in fields.items() if not (name in quoted and quoted[name] is None)}
    wanted |= {name: changes[name] for name, value in quoted.items() if value is not None}
    if set(fields) <= {name for name, value in quoted.items() if value is None}:
        return  # a call always keeps its model: an emptied object does not occur
    assert json.loads(edited(body, quoted, dict.fromkeys(fields, b""))) == wanted
