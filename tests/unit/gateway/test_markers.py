"""Markers of a prefix cache: a message is the same with and without one."""

import json

import pytest

from gateway.digests import of_messages
from gateway.markers import without_markers

MARK = {"cache_control": {"type": "ephemeral"}}
TIMED = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": "), (" , ", " : ")])
@pytest.mark.parametrize("marked", [MARK, TIMED, {"cache_control": None}])
@pytest.mark.parametrize("first", [True, False])
def test_a_message_is_the_same_with_and_without_a_marker(
    separators: tuple[str, str], marked: dict[str, object], *, first: bool
) -> None:
    part: dict[str, object] = {"type": "text", "text": "a"}
    plain = {"role": "user", "content": [part, part]}
    part = marked | part if first else part | marked
    with_marker = {"role": "user", "content": [plain["content"][0], part]}
    one, two = (json.dumps(each, separators=separators).encode() for each in (plain, with_marker))
    assert json.loads(without_markers(two)) == plain
    assert of_messages([one]) == of_messages([two])


def test_a_field_of_the_message_itself_goes_too() -> None:
    assert without_markers(b'{"role":"user","content":"a","cache_control":{"type":"ephemeral"}}') == (
        b'{"role":"user","content":"a"}'
    )
    assert without_markers(b'{"cache_control":{"type":"ephemeral"}}') == b"{}"


def test_what_a_text_says_of_markers_is_text() -> None:
    body = json.dumps({"role": "user", "content": 'Put "cache_control": {"type": "ephemeral"}, here.'}).encode()
    assert without_markers(body) == body


@pytest.mark.parametrize("filler", [b" ", b",", b", ", b'"cache_control" ', b'"cache_control":{', b'"cache_control":'])
def test_the_work_is_bounded_whatever_stands_there(filler: bytes) -> None:
    """With a pattern that began with white space, a body like this took hours."""
    body = b'{"a":1' + filler * 200_000 + b'"cache_control"}'
    assert len(without_markers(body)) <= len(body)


def test_without_markers_it_is_the_very_same_object() -> None:
    body = b'{"role":"user","content":"a"}'
    assert without_markers(body) is body
