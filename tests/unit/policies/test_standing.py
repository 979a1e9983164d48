"""Standing policies as they are remembered."""

from policies.pin import Pin
from policies.repair import Repair
from policies.standing import dumps, framed, loads
from policies.strip import Strip
from tests.unit.policies.conversations import conversation, result, system, user


def test_they_are_remembered_by_what_differs_from_the_defaults() -> None:
    policies = (Pin(tools=("a*",), mode="shadow"), Strip(), Repair())
    text = dumps(policies)
    assert text == '[{"kind":"pin","tools":["a*"]},{"kind":"strip"},{"kind":"repair"}]'
    assert loads(text) == (Pin(tools=("a*",)), Strip(), Repair())


def test_none_is_nothing() -> None:
    assert dumps(()) == ""
    assert loads("") == ()


def test_what_this_version_does_not_know_is_no_memory() -> None:
    assert loads('[{"kind":"polish"}]') is None
    assert loads("nonsense") is None


def test_what_is_pinned_is_not_put_right_and_repairs_come_once() -> None:
    talk = conversation(system("now: 10:00\nBe brief."), result("x"), user("\ud83d"))
    frame = framed(talk, (Repair(), Repair(), Strip(), Pin(roles=("system", "user"))))
    assert frame.untouched == {0, 2}
    assert (frame.mends.texts, frame.mends.calls) == ({}, {})
    assert framed(talk, (Repair(), Strip())).mends.texts.keys() == {0, 2}
