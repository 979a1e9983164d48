"""What scripts are told of limits: those of a board stand together, and the same names are known as the same."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from budgets.layout import QUOTA, RATE, Row, terms, together


@given(st.lists(st.sampled_from(["", "a", "b", "c"])))
def test_limits_of_a_board_stand_together_each_in_its_order(boards: list[str]) -> None:
    order = together(boards)
    assert sorted(order) == [*range(len(boards))]
    stand = [boards[at] for at in order]
    assert [board for board, _ in groupby(stand)] == [*dict.fromkeys(boards)]
    for board in {*boards}:
        of_board = [at for at in order if boards[at] == board]
        assert of_board == sorted(of_board)


def row(bucket: str, capacity: int = 5, kind: int = RATE) -> Row:
    return Row(" ", bucket, kind, 1, 1, capacity, 1, 2, -1)


def layouts(*rows: Row) -> bytes:
    return terms(0.0, 1.0, rows)[: 1 + 2 + 1 + 5 + 10]


def test_a_board_is_known_by_the_names_of_its_buckets_whatever_their_limits_say() -> None:
    """So that an edited amount arranges nothing anew."""
    assert layouts(row("a"), row("b")) == layouts(row("a", 9), row("b", 7, QUOTA))
    assert len({layouts(row("a"), row("b")), layouts(row("b"), row("a")), layouts(row("a")), layouts(row("ab"))}) == 4
