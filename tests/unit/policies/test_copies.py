"""Copies and what stands in for a lost original."""

from policies.copies import Copy, Restored, families, promoted, restorations
from policies.memory import Trim
from policies.trimmed import Trimmed
from tests.unit.policies.conversations import conversation, result

TALK = conversation(*(result(str(number), "the same") for number in range(6)))


def copy(at: int, head: int) -> Copy:
    return Copy(head, Trimmed(Trim(TALK.messages[at].digest, "same", 6, 2), "see above"))


COPIES = {2: copy(2, 0), 4: copy(4, 0), 5: copy(5, 1)}


def test_families() -> None:
    assert families(COPIES) == {0: [2, 4], 1: [5]}


def test_the_stand_in_takes_over_the_copies_behind_it_and_the_trim() -> None:
    trimmed = {0: Trimmed(Trim(TALK.messages[0].digest, "text", 6, 3), "short", again=True)}
    copies, cut = promoted(TALK.messages, {0: 2, 1: None}, COPIES, trimmed)
    assert {at: left.head for at, left in copies.items()} == {4: 2, 5: 1}
    assert cut[2] == Trimmed(Trim(TALK.messages[2].digest, "text", 6, 3), "short")


def test_where_a_window_brings_a_copy_back() -> None:
    found = list(restorations(COPIES, frozenset(), lambda at: 10 * at, 6))
    assert found == [Restored(1, 3, 20), Restored(3, 5, 40), Restored(2, 6, 50)]


def test_a_pinned_original_is_never_lost_and_a_pinned_copy_stays() -> None:
    assert list(restorations({2: copy(2, 0)}, frozenset({0}), lambda at: 1, 6)) == []
    assert list(restorations({2: copy(2, 0), 4: copy(4, 0)}, frozenset({2}), lambda at: 1, 6)) == [Restored(1, 7, 1)]
