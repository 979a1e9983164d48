"""The breaker's states, one transition a test."""

from functools import reduce

from backends.breaker import CLOSED, Breaker, BreakerSettings, Outcome, probe, record

SETTINGS = BreakerSettings(
    consecutive_failures=3, failure_rate=0.5, window_calls=10, open_seconds=5.0, open_cap_seconds=30.0
)


def after(outcomes: list[Outcome], breaker: Breaker = CLOSED, now: float = 0.0) -> Breaker:
    return reduce(lambda state, outcome: record(state, outcome, now, SETTINGS, probed=False), outcomes, breaker)


def after_probe(breaker: Breaker, outcome: Outcome, now: float) -> Breaker:
    return record(probe(breaker), outcome, now, SETTINGS, probed=True)


OPEN = after(["failure"] * 3)


def test_failures_in_a_row_open() -> None:
    assert after(["failure"] * 2).state(0.0) == "closed"
    assert OPEN.state(4.9) == "open"
    assert not OPEN.admits(4.9)


def test_a_success_begins_the_row_anew_and_a_neutral_outcome_does_not() -> None:
    assert after(["failure", "failure", "success", "failure", "failure"]).state(0.0) == "closed"
    assert after(["failure", "failure", "neutral", "failure"]).state(0.0) == "open"


def test_clients_mistakes_never_open() -> None:
    assert after(["neutral"] * 100) == CLOSED


def test_a_rate_of_failures_opens_once_the_window_is_full() -> None:
    mixed: list[Outcome] = ["failure", "success"] * 4
    assert after(mixed).state(0.0) == "closed"
    assert after([*mixed, "success", "failure"]).state(0.0) == "open"
    rare: list[Outcome] = ["success", "success", "success", "failure"]
    assert after(rare * 20).state(0.0) == "closed"


def test_half_open_admits_one_probe() -> None:
    assert OPEN.state(5.0) == "half_open"
    assert OPEN.admits(5.0)
    assert not probe(OPEN).admits(5.0)


def test_a_probe_that_succeeds_closes() -> None:
    assert after_probe(OPEN, "success", 6.0) == CLOSED


def test_a_neutral_probe_proves_nothing_and_the_next_may_go() -> None:
    waiting = after_probe(OPEN, "neutral", 6.0)
    assert waiting.state(6.0) == "half_open"
    assert waiting.admits(6.0)


def test_failed_probes_double_the_time_up_to_the_cap() -> None:
    breaker, now, times = OPEN, 0.0, []
    for _ in range(5):
        assert breaker.open_until is not None
        times.append(breaker.open_until - now)
        now = breaker.open_until
        breaker = after_probe(breaker, "failure", now)
    assert times == [5.0, 10.0, 20.0, 30.0, 30.0]


def test_a_thousand_failed_probes_still_end() -> None:
    breaker = Breaker(open_until=0.0, openings=5000)
    assert after_probe(breaker, "failure", 1.0).open_until == 31.0


def test_calls_sent_before_it_opened_tell_nothing_new() -> None:
    assert after(["success", "failure", "neutral"], OPEN, now=6.0) == OPEN
    assert after(["success"], probe(OPEN), now=6.0) == probe(OPEN)


def test_no_success_opens_however_bad_the_window() -> None:
    bad: list[Outcome] = [
        "failure",
        "failure",
        "success",
        "failure",
        "failure",
        "success",
        "failure",
        "success",
        "success",
    ]
    assert after([*bad, "success"]).state(0.0) == "closed"
    assert after([*bad, "failure"]).state(0.0) == "open"
