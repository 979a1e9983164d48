"""Where a text may be cut."""

from itertools import pairwise

import pytest
import regex

from policies.text_spans import boundary, error_lines, spans

FLAG, FAMILY = "\U0001f1e9\U0001f1ea", "\U0001f468\u200d\U0001f469\u200d\U0001f467"


def borders(text: str) -> set[int]:
    return {match.end() for match in regex.finditer(r"\X", text)} | {0}


@pytest.mark.parametrize(
    "text",
    [
        "plain ascii",
        "e\u0301" * 9,
        FLAG * 40,
        FAMILY * 9,
        "a\r\n\r\nb",
        "\u4e2d\u6587" * 9,
        "\u0600" + "1" * 5,
        "x" + "\u0301" * 300,
    ],
    ids=["ascii", "accents", "flags", "families", "crlf", "cjk", "prepended", "zalgo"],
)
def test_a_border_is_the_last_one_at_or_before(text: str) -> None:
    allowed = borders(text)
    for at in range(len(text) + 1):
        assert boundary(text, at) == max(border for border in allowed if border <= at)


def test_flags_far_into_a_text_of_flags_are_not_torn() -> None:
    text = FLAG * 20_000
    assert all(boundary(text, at) % 2 == 0 for at in range(30_000, 30_010))


def test_a_pair_of_surrogates_is_not_torn() -> None:
    assert boundary("ab\ud83d\ude00cd", 3) == 2


def test_places_outside_are_drawn_in() -> None:
    assert (boundary("abc", -5), boundary("abc", 9)) == (0, 3)


def test_lines_that_look_like_errors_are_found_once_each_and_shortened() -> None:
    text = "fine\nERROR: an error\n" + "y" * 1000 + " Exception " + "z" * 1000 + "\nTraceback"
    found = [text[start:stop] for start, stop in error_lines(text)]
    assert found[0] == "ERROR: an error"
    assert "Exception" in found[1] and len(found[1]) <= 240
    assert found[2:] == ["Traceback"]


def test_head_and_tail_end_at_lines_where_one_is_near() -> None:
    text = "".join(f"line {number}\n" for number in range(1000))
    (_, head_stop), (tail_start, stop) = spans(text, 200, 0.5, ())
    assert text[head_stop - 1] == text[tail_start - 1] == "\n"
    assert 50 <= head_stop <= 100 and 50 <= stop - tail_start <= 100


def test_error_lines_of_the_middle_take_an_eighth_of_the_room() -> None:
    text = "\n".join([*["ok"] * 500, *[f"error {number}" for number in range(100)], *["ok"] * 500])
    kept = spans(text, 400, 0.5, error_lines(text))
    lines = kept[1:-1]
    assert [text[start:stop] for start, stop in lines] == [f"error {number}" for number in range(6)]
    assert all(one[1] <= two[0] for one, two in pairwise(kept))


def test_one_long_line_is_cut_within() -> None:
    assert spans("x" * 1000, 100, 0.6, ()) == ((0, 60), (960, 1000))
