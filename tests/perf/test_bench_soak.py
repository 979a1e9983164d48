"""What a soak calls clean, and each thing that it does not."""

from dataclasses import replace
from typing import Any

import pytest

from bench.soak_account import Account, Reading

FULL = {
    "kvgate_remembered token_counts": 60.0,
    "kvgate_remembered_most token_counts": 100.0,
    "kvgate_remembered reply_lengths": 1.0,
    "kvgate_remembered_most reply_lengths": 100.0,
}
SEEN = FULL | {"kvgate_resident_bytes": 140e6, "kvgate_python_blocks": 6e5}
FLAT = [Reading(number * 1_000, SEEN) for number in range(300)]
CLEAN = Account(600.0, 600.0, {"done": 290_000, "left": 9_000}, FLAT, FULL, FULL, 0)


def test_a_clean_run() -> None:
    assert CLEAN.problems == []
    told = CLEAN.told()
    assert told["calls"] == 299_000
    assert told["bytes_a_call"] == {"slope": 0.0, "error": 0.0, "at most": 0.0, "bound": 4.0}
    assert told["memory_megabytes"] == {"begin": 140.0, "last two thirds": [140.0, 140.0], "end": 140.0}


def grows(name: str, by: float) -> list[Reading]:
    return [Reading(r.calls, {**r.figures, name: r.figures[name] + by * r.calls}) for r in FLAT]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"after": FULL | {"kvgate_in_flight": 1.0}}, "in_flight"),
        ({"after": FULL | {"kvgate_requests_open": 1.0}}, "requests_open"),
        ({"after": FULL | {"kvgate_task_failures_total": 1.0}}, "task_failures"),
        ({"after": FULL | {"kvgate_garbage_objects_total": 9_000.0}}, "garbage"),
        ({"before": FULL | {"kvgate_remembered token_counts": 40.0}}, "token_counts was not full"),
        ({"after": FULL | {"kvgate_remembered reply_lengths": 3.0}}, "reply_lengths was not full"),
        ({"reservations": 1}, "reservations_open"),
        ({"outcomes": {"done": 299_999, "silent": 1}}, "silent ends"),
        ({"readings": grows("kvgate_resident_bytes", 5.0)}, "memory grows"),
        ({"readings": grows("kvgate_python_blocks", 0.03)}, "objects are left behind"),
        ({"readings": FLAT[:20]}, "memory grows, or the run is too short to tell"),
    ],
)
def test_what_is_not_clean(change: dict[str, Any], problem: str) -> None:
    problems = replace(CLEAN, **change).problems
    assert problems and problems[0].startswith(problem)


def test_what_forgets_to_make_room_is_full() -> None:
    assert replace(CLEAN, after=FULL | {"kvgate_remembered token_counts": 99.0}).problems == []
    assert replace(CLEAN, after=FULL | {"kvgate_remembered token_counts": 51.0}).problems == []


def test_what_fills_and_forgets_is_no_leak() -> None:
    def at(number: int) -> Reading:
        held = 32_000.0 + number % 60 * 500
        more = {"kvgate_remembered token_counts": held, "kvgate_python_blocks": 6e5 + 2 * held + number % 7}
        return Reading(number * 1_000, SEEN | more)

    assert replace(CLEAN, readings=[at(number) for number in range(300)]).problems == []


def test_late_answers_of_the_store_are_told_and_no_fault() -> None:
    late = replace(CLEAN, after=FULL | {"kvgate_store_timeouts_total": 5.0})
    assert late.problems == []
    assert late.told()["store_timeouts"] == 5.0
