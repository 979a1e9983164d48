"""YAML that is no mapping of single keys, and the lines of places."""

import pytest

from config.document import Document
from config.problems import ConfigError, Problem


def problems(text: str) -> tuple[Problem, ...]:
    with pytest.raises(ConfigError) as caught:
        Document(text)
    return caught.value.problems


def test_data_and_lines() -> None:
    document = Document("a:\n  b:\n  - 1\n  - {c: 2}\nd: 3\n")
    assert document.data == {"a": {"b": [1, {"c": 2}]}, "d": 3}
    assert [document.line(place) for place in [(), ("a",), ("a", "b", 1, "c"), ("d",)]] == [1, 1, 4, 5]


def test_a_place_that_is_not_there_has_the_line_of_what_is_above_it() -> None:
    document = Document("a:\n  b: 1\nc: 2\n")
    assert document.line(("a", "b", "missing")) == 2
    assert document.line(("a", "missing")) == 1


def test_a_key_that_stands_twice_is_told_wherever_it_stands() -> None:
    assert problems("a: 1\nb:\n  - c: 1\n    c: 2\na: 3\n") == (
        Problem("", "'c' stands twice; remove one", 4),
        Problem("", "'a' stands twice; remove one", 5),
    )


def test_anchors_and_merges_are_not_twice() -> None:
    document = Document("a: &base {x: 1, y: 2}\nb: {<<: *base, y: 3}\n")
    assert document.data["b"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a: [1,\nb", 2, 2),
        ("a:\n\t- 1", 2, 1),
        ("a: 'x", 1, 6),
        ("a: 1\n---\nb: 2", 2, 1),
        ("a: !!python/name:os.system x", 1, 4),
    ],
)
def test_a_syntax_error_names_line_and_column(text: str, line: int, column: int) -> None:
    (problem,) = problems(text)
    assert problem.line == line
    assert problem.message.startswith("not YAML: ") and f"(column {column})" in problem.message


@pytest.mark.parametrize("text", ["", "# nothing", "- a\n- b", "text", "3"])
def test_a_file_that_is_no_mapping(text: str) -> None:
    assert problems(text) == (Problem("", "expected a mapping with models, pools, tiers and tenants"),)


def test_a_key_that_is_no_text() -> None:
    assert "unhashable" in str(problems("? [a]\n: 1\n")[0])
    assert Document("{1: a, null: b}").data == {1: "a", None: "b"}


def test_characters_that_yaml_does_not_allow() -> None:
    assert "not YAML" in problems("a: \x00")[0].message
