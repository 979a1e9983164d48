"""Texts of trims, remembered."""

from gateway.rendered import Rendered
from policies.memory import Trim
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
    rendered = Rendered(max_characters=2 * size)
    first = rendered(TEXT, trim(b"a"))
    for name in (b"b", b"c"):
        rendered(TEXT, trim(name))
    assert rendered(TEXT, trim(b"a")) is not first
