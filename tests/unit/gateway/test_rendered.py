"""Texts of trims, remembered."""

from gateway.kept import Kept
from gateway.recent import Recent
from gateway.rendered import Rendered
from policies.covering import Cover
from policies.memory import InForce, Recorded, Trim
from policies.summary import Summary
from policies.trimmed_text import render

TEXT = "".join(f"line {number}\n" for number in range(100))


def trim(name: bytes, head: int = 10) -> Trim:
    return Trim(name, "text", 300, 200, ((0, head), (len(TEXT) - 10, len(TEXT))))


def test_the_same_trim_gives_the_very_same_text() -> None:
    rendered = Rendered()
    first = rendered(TEXT, trim(b"a"))
    assert first == render(TEXT, trim(b"a"))
    assert rendered(TEXT, trim(b"a")) is first
    assert rendered(TEXT, trim(b"a", 20)) == render(TEXT, trim(b"a", 20)) != first


def test_what_is_held_is_bounded() -> None:
    size = len(render(TEXT, trim(b"a")))
    kept = Kept(trimmed=Recent(2 * size, len))
    one, other = Rendered(kept, ("acme", "demo")), Rendered(kept, ("zeta", "demo"))
    first = one(TEXT, trim(b"a"))
    assert one(TEXT, trim(b"a")) is first
    for name in (b"b", b"c"):
        other(TEXT, trim(name))
    assert one(TEXT, trim(b"a")) is not first
    assert kept.trimmed.weight <= 2 * size


def test_nobody_gets_what_was_made_for_another() -> None:
    kept = Kept()
    one, other = Rendered(kept, ("acme", "demo")), Rendered(kept, ("zeta", "demo"))
    assert one(TEXT, trim(b"a")) is not other(TEXT, trim(b"a"))
    one.keep(summary(b"a", 300))
    assert other.records(recorded(b"a", 300)) == {}


def summary(name: bytes, room: int) -> Summary:
    return Summary(Cover(1, 4), name, "FACTS\nport 8443", "framed", 20, room)


def recorded(name: bytes, room: int) -> InForce:
    return InForce(summary=Recorded(4, b"p", name, 20, room))


def test_a_record_of_facts_is_remembered_for_its_room_alone() -> None:
    rendered = Rendered()
    rendered.keep(summary(b"a", 300))
    rendered.keep(summary(b"b", 0))
    assert rendered.records(recorded(b"a", 300)) == {b"a": "FACTS\nport 8443"}
    for other in (recorded(b"a", 200), recorded(b"b", 0), InForce()):
        assert rendered.records(other) == {}
