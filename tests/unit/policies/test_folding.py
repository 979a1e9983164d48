"""Repeated lines folded."""

import pytest

from policies.folding import folded


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("", ""),
        ("a\na\nb", "a\na\nb"),
        ("a\na\na\nb\n", "a [kvgate: this line x 3]\nb\n"),
        ("a\nb\na\nb\na\nb", "a\nb\na\nb\na\nb"),
        ("\n\n\n\n", "\n\n\n\n"),
        ("retry\n" * 57 + "gone", "retry [kvgate: this line x 57]\ngone"),
    ],
)
def test_runs_of_equal_lines_are_folded(text: str, short: str) -> None:
    assert folded(text) == short
    assert folded(short) == short
