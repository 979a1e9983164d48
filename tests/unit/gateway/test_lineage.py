"""Lineage: what a tier leaves out of instructions does not count, all else does."""

import json

import pytest

from gateway import digests
from gateway.lineage import recognised, stripping
from policies.policy import Policy
from policies.strip import Strip

STRIP = Strip()


def names(*messages: object, strip: Strip | None = STRIP) -> tuple[bytes, ...]:
    raw = [json.dumps(message).encode() for message in messages]
    return recognised(raw, digests.of_messages(raw), strip)


def system(text: object, role: object = "system") -> dict[str, object]:
    return {"role": role, "content": text}


def test_a_line_that_is_left_out_does_not_count() -> None:
    early, late, never = (system(f"Be brief.{clock}") for clock in ("\nTime: 10:01", "\nTime: 10:02", ""))
    assert names(early) == names(late) == names(never)
    assert names(early, strip=None) != names(late, strip=None)
    parts = [{"type": "text", "text": "Be brief.\nTime: 10:03"}]
    assert names(system(parts)) == names(never)


@pytest.mark.parametrize("role", ["user", "assistant", "tool", None, 3, ["system"]])
def test_only_instructions_lose_lines(role: object) -> None:
    one, two = (system(f"the system says\nTime: 10:0{n}", role) for n in (1, 2))
    assert names(one) != names(two)


def test_all_else_counts() -> None:
    assert names(system("Be brief.")) != names(system("Be long."))
    assert names(system("Be brief.")) != names(system("Be brief.", "developer"))
    assert names(system("Time: 10:01")) != names(system("Time: 10:02")), "never all of a message is left out"
    assert len(names(system(None), system("\ud800"), "system", 1)) == 4


def test_only_a_policy_in_force_leaves_out() -> None:
    shadow: Policy = Strip(mode="shadow")
    assert stripping([shadow, STRIP]) is STRIP
    assert stripping([shadow]) is None
