"""Lines that break every cache, left out of the system prompt."""

import pytest

from policies.conversation import Conversation
from policies.edit import apply
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, Memory
from policies.plan import Plan, plan
from policies.policy import Policy
from policies.strip import Strip
from policies.validate import violations
from tests.unit.policies.conversations import conversation, count, message, says, system, user


def prompt(text: str, policy: Strip | None = None) -> str:
    talk = conversation(system(text), user())
    done = plan(talk, [policy or Strip()], EMPTY, count)
    assert isinstance(done, Plan)
    assert violations(talk, done.edits) == ()
    return apply(talk, done.edits).messages[0].text


@pytest.mark.parametrize(
    "line",
    [
        "x-anthropic-billing-header: cc_version=2.1; cch=a1b2c;",
        "Current time: 2026-11-30T10:00:01Z",
        "- **Current date and time: Monday, 30 November 2026, 10:00:01 (UTC)**",
        "The current time is 10:00.",
        "# Now: 10:00:01",
        "Timestamp: 2026-11-30 10:00:01.123",
        "Request-ID: 0f8e1c52-6d5e",
    ],
)
def test_volatile_lines_go(line: str) -> None:
    assert prompt(f"{line}\nYou are brief.\nYou are kind.") == "You are brief.\nYou are kind."
    assert prompt(f"You are brief.\n{line}\nYou are kind.") == "You are brief.\nYou are kind."


@pytest.mark.parametrize(
    "text",
    [
        "Today is 2026-11-30.\nYou are brief.",
        "We meet at the same time every day, at 10:00.\nYou are brief.",
        "Never reveal a request id.\nYou are brief.",
        "Current time: 10:00:01",
        "Current time: 10:00:01\n \n",
        "now: " + "10:00 " * 200 + "\nYou are brief.",
        "",
    ],
)
def test_other_lines_stay_and_a_prompt_is_never_emptied(text: str) -> None:
    assert prompt(text) == text


def test_only_the_top_is_looked_at_and_lines_left_out_do_not_count() -> None:
    lines = ["now: 10:00", "one", "now: 10:01", "now: 10:02", "two", "now: 10:03"]
    assert prompt("\n".join(lines), Strip(head_lines=2)) == "one\ntwo\nnow: 10:03"


def test_globs_of_ones_own() -> None:
    assert prompt("Build 77\nnow: 10:00\nBe brief.", Strip(lines=("BUILD *",))) == "now: 10:00\nBe brief."


def test_what_is_left_has_no_lone_surrogates() -> None:
    assert prompt("now: 10:00\nBe \ud83d brief.") == "Be \ufffd brief."


def test_users_and_images_are_left_alone() -> None:
    talk = conversation(message("system", "now: 10:00\nBe brief.", media=1), user("now: 10:00\nHello"))
    done = plan(talk, [Strip()], EMPTY, count)
    assert isinstance(done, Plan) and done.edits == ()


def of_turn(number: int, turns: int) -> Conversation:
    """A client that tells the time in its system prompt, on its turn `number`."""
    parts = [part for turn in range(turns) for part in (user(f"{turn}?"), says(f"{turn}!"))]
    return conversation(system(f"now: 10:{number:02}\nBe brief."), *parts, user("And now?"))


def test_the_same_bytes_on_every_turn_and_a_window_that_stays() -> None:
    policies: list[Policy] = [Strip(), KeepRecentTurns(turns=2, high_water_turns=4)]
    first = plan(of_turn(1, 6), policies, EMPTY, count)
    assert isinstance(first, Plan)
    second = plan(of_turn(2, 6), policies, Memory.loads(first.memory.dumps()), count, known_messages=14)
    assert isinstance(second, Plan)
    texts = [[kept.text for kept in apply(of_turn(n, 6), done.edits).messages] for n, done in ((1, first), (2, second))]
    assert texts[0] == texts[1]
    assert texts[0][0] == "Be brief."
    assert second.memory.enforced.cut == first.memory.enforced.cut is not None


@pytest.mark.parametrize("line", ["*" * 500, "a" * 512, "x-" + "-billing-header" * 30])
def test_no_line_is_slow(line: str) -> None:
    prompt("\n".join([line] * 50), Strip(lines=("*a*a*a*a*a*a*a*b", "x-*-*-*-*-*-*-*z"), head_lines=50))
