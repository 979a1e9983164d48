"""Which conversations an engine would refuse for a call's arguments."""

import json

import pytest

from gateway.arguments import MENDED, SoundArguments
from gateway.call import Call
from gateway.digests import of_messages
from gateway.kept import Kept
from tests.unit.gateway.samples import call


def with_arguments(*arguments: object) -> Call:
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "f", "arguments": a}}
        for at, a in enumerate(arguments)
    ]
    messages = [{"role": "user", "content": "Look."}, {"role": "assistant", "tool_calls": calls}]
    return call(json.dumps({"model": "demo", "messages": messages}).encode())


@pytest.mark.parametrize(
    ("arguments", "broken"),
    [('{"a": 1}', False), ("", False), ({"a": 1}, False), ('{"a": ', True), ("[1]", True), ("look", True)],
)
def test_arguments_are_broken_unless_they_are_an_object_or_none(arguments: object, broken: bool) -> None:
    made = with_arguments("{}", arguments)
    assert (SoundArguments().repair(made, of_messages(made.messages)) is MENDED) is broken


def test_what_was_sound_is_not_read_again() -> None:
    kept, made = SoundArguments(), with_arguments("{}")
    names = of_messages(made.messages)
    assert kept.repair(made, names) is None
    broken = with_arguments('{"a": ')
    assert kept.repair(broken, names) is None
    assert kept.repair(broken, of_messages(broken.messages)) is MENDED


def test_what_was_sound_for_one_is_read_for_another() -> None:
    kept, made = Kept(), with_arguments("{}")
    names = of_messages(made.messages)
    one, other = SoundArguments(kept, ("acme", "demo")), SoundArguments(kept, ("zeta", "demo"))
    assert one.repair(made, names) is None
    broken = with_arguments('{"a": ')
    assert one.repair(broken, names) is None
    assert other.repair(broken, names) is MENDED


def test_without_calls_nothing_is_read() -> None:
    plain = call(b'{"model":"demo","messages":[{"role":"user","content":"Hi"}]}')
    assert SoundArguments().repair(plain, ()) is None
