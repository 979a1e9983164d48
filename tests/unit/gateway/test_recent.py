"""What was asked for lately is held, within a bound, at a cost that does not grow."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.recent import Recent


def test_what_is_asked_for_stays_and_what_is_not_goes() -> None:
    kept: Recent[int, str] = Recent(10)
    kept.keep(0, "often")
    for number in range(1, 100):
        kept.keep(number, "once")
        assert kept.get(0) == "often"
    assert kept.get(1) is None
    assert kept.get(99) == "once"


def test_all_that_are_held_of_many() -> None:
    kept: Recent[int, int] = Recent(8)
    for number in range(6):
        kept.keep(number, number * number)
    assert kept.those(range(-1, 9)) == {number: number * number for number in range(6)}
    assert kept.those(()) == {}


def test_a_value_that_is_too_heavy_is_not_kept_and_pushes_nothing_out() -> None:
    kept: Recent[str, str] = Recent(20, len)
    kept.keep("a", "12345")
    kept.keep("b", "x" * 11)
    assert (kept.get("a"), kept.get("b"), kept.weight) == ("12345", None, 5)


def test_another_value_takes_the_place_of_the_one_before() -> None:
    kept: Recent[str, str] = Recent(20, len)
    for value in ("1234567", "1", "123"):
        kept.keep("a", value)
        assert (kept.get("a"), kept.weight, len(kept)) == (value, len(value), 1)
    kept.keep("a", "x" * 11)
    assert (kept.get("a"), kept.weight, len(kept)) == (None, 0, 0)


@given(
    most=st.integers(0, 12),
    steps=st.lists(st.tuples(st.sampled_from(["get", "keep", "those"]), st.integers(0, 9), st.integers(0, 7))),
)
def test_it_never_gives_another_value_and_never_weighs_more(most: int, steps: list[tuple[str, int, int]]) -> None:
    kept: Recent[int, str] = Recent(most, len)
    last: dict[int, str] = {}
    for step, key, size in steps:
        if step == "keep":
            last[key] = "x" * size
            kept.keep(key, last[key])
        elif step == "get":
            assert kept.get(key) in (None, last.get(key))
        else:
            assert kept.those(range(10)).items() <= last.items()
        held = {**kept._old, **kept._young}
        assert kept.weight == sum(map(len, held.values())) <= most
        assert len(kept) == len(held)


def test_the_older_half_goes_at_once_so_that_nothing_is_walked_over() -> None:
    kept: Recent[int, int] = Recent(80_000)
    for number in range(40_000 + 1):
        kept.keep(number, number)
    assert len(kept) == 40_001
    for number in range(40_001, 80_001):
        kept.keep(number, number)
    assert (len(kept), kept.get(39_999), kept.get(40_000)) == (40_001, None, 40_000)
