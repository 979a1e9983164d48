"""Lines of outputs that say something the others do not."""

import json

from policies import odd_lines

LOG = [f"10:00:{number:02} pump 3 pressure {number}.5 bar, valve {chr(97 + number % 26)} open" for number in range(50)]


def odd(lines: list[str]) -> list[str]:
    return odd_lines.odd(odd_lines.read("\n".join(lines)))


def test_what_stands_once_in_a_log_is_odd() -> None:
    assert odd([*LOG[:30], "reviewed by Ilse Okonkwo", *LOG[30:]]) == ["reviewed by Ilse Okonkwo"]
    assert odd(LOG) == []


def test_of_a_listing_in_which_every_line_differs_none_is_odd() -> None:
    words = [
        "def",
        "class",
        "import",
        "return",
        "while",
        "for",
        "yield",
        "raise",
        "with",
        "assert",
        "break",
        "continue",
        "pass",
        "lambda",
        "global",
        "del",
    ]
    assert odd([f"    {word} {other}()" for word in words for other in words[:3]]) == []


def test_short_outputs_are_all_odd_but_not_their_ornaments() -> None:
    assert odd(["status: ready", "-----", "}", "42", "owner: ops"]) == ["status: ready", "owner: ops"]


def test_of_too_many_some_from_the_beginning_and_some_from_the_end_stay() -> None:
    lines = [f"item {'abcdefghijklmnop'[number] * 3} found" for number in range(11)]
    found = odd(lines)
    assert len(found) == odd_lines.MOST_OF_AN_OUTPUT and (found[0], found[-1]) == (lines[0], lines[-1])


def test_members_of_json_are_lines() -> None:
    value = {"rows": [{"id": number, "state": "ok"} for number in range(40)], "note": "the limit stays at 9000 ms"}
    assert any("the limit stays at 9000 ms" in line for line in odd([json.dumps(value)]))


def test_only_so_much_is_looked_at() -> None:
    read = odd_lines.read("\n".join(str(number) * 500 for number in range(2000)))
    assert len(read.lines) == odd_lines.OUTPUT_LINES and max(map(len, read.lines)) <= odd_lines.LINE_CHARACTERS
    assert odd_lines.read("").lines == ("",)
