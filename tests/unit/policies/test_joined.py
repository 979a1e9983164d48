"""Memory of turns that ran side by side: nothing lost, nothing twice, whichever wrote first."""

from policies.joined import joined
from policies.memory import EMPTY, Cut, InForce, Memory, Recorded, Trim


def trim(name: str, form: str = "text", removed: int = 5) -> Trim:
    return Trim(name.encode(), form, 10, removed)  # type: ignore[arg-type]


def memory(*trims: Trim, cut: Cut | None = None, cleared: Cut | None = None, standing: str = "") -> Memory:
    return Memory(InForce(trims, cut, cleared, standing))


def test_trims_of_both_are_kept_once_and_ours_counts() -> None:
    ours, theirs = memory(trim("a", removed=7), trim("b")), memory(trim("a"), trim("c"))
    assert joined(ours, theirs).enforced.trims == (trim("a", removed=7), trim("c"), trim("b"))


def test_an_original_and_its_copy_are_two_trims() -> None:
    both = joined(memory(trim("a")), memory(trim("a", "same")))
    assert both.enforced.trims == (trim("a", "same"), trim("a"))


def test_a_window_never_moves_back() -> None:
    near, far = Cut(3, b"p"), Cut(9, b"q")
    for ours, theirs in ((near, far), (far, near), (None, far), (far, None)):
        assert joined(memory(trim("a"), cut=ours), memory(trim("a"), cut=theirs)).enforced.cut == far
        assert joined(memory(trim("a"), cleared=ours), memory(trim("a"), cleared=theirs)).enforced.cleared == far


def test_the_record_that_stands_for_more_counts() -> None:
    less, more = Recorded(4, b"p", b"k"), Recorded(8, b"q", b"l")
    for ours, theirs in ((less, more), (more, less), (None, more), (more, None)):
        both = joined(Memory(InForce((trim("a"),), summary=ours)), Memory(InForce((trim("a"),), summary=theirs)))
        assert both.enforced.summary == more
        both = joined(Memory(InForce((trim("a"),), ahead=ours)), Memory(InForce((trim("a"),), ahead=theirs)))
        assert both.enforced.ahead == more


def test_with_nothing_it_is_the_other() -> None:
    some = memory(trim("a"), cut=Cut(3, b"p"), standing="[]")
    assert joined(EMPTY, some) == joined(some, EMPTY) == joined(some, some) == some


def test_shadow_is_joined_apart() -> None:
    ours = Memory(InForce((trim("a"),)), InForce((trim("x"),)))
    theirs = Memory(InForce(), InForce((trim("y"),)))
    both = joined(ours, theirs)
    assert both.enforced.trims == (trim("a"),)
    assert both.shadow.trims == (trim("y"), trim("x"))
