"""Windows of the calendar: where they begin and end, across changes of the clock and ends of months."""

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from budgets.window import PERIODS, Period, Window, window

ZONES = ("UTC", "Europe/Paris", "America/New_York", "Africa/Cairo", "Asia/Kathmandu", "Australia/Lord_Howe")
ODD = ("America/Havana", "America/St_Johns", "Pacific/Apia", "America/Sao_Paulo", "Asia/Gaza", "Antarctica/Troll")
SECONDS = st.integers(946_684_800, 2_208_988_800)


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


@pytest.mark.parametrize(
    ("period", "zone", "now", "id", "starts", "ends"),
    [
        ("minute", "UTC", "2026-11-30T10:20:59.9", "minute:2026-11-30T10:20", "2026-11-30T10:20", "2026-11-30T10:21"),
        ("hour", "UTC", "2026-11-30T10:20", "hour:2026-11-30T10", "2026-11-30T10:00", "2026-11-30T11:00"),
        ("day", "Europe/Paris", "2026-11-30T00:00", "day:2026-11-30", "2026-11-30T00:00", "2026-12-01T00:00"),
        ("week", "Europe/Paris", "2026-11-29T23:59", "week:2026-11-23", "2026-11-23T00:00", "2026-11-30T00:00"),
        ("week", "UTC", "2027-01-01T12:00", "week:2026-12-28", "2026-12-28T00:00", "2027-01-04T00:00"),
        ("month", "UTC", "2026-12-31T23:59:59", "month:2026-12", "2026-12-01T00:00", "2027-01-01T00:00"),
        ("month", "UTC", "2028-02-29T12:00", "month:2028-02", "2028-02-01T00:00", "2028-03-01T00:00"),
        ("month", "America/New_York", "2026-01-31T23:00", "month:2026-01", "2026-01-01T00:00", "2026-02-01T00:00"),
    ],
)
def test_where_a_window_begins_and_ends(period: Period, zone: str, now: str, id: str, starts: str, ends: str) -> None:
    assert window(period, zone, at(now, zone)) == Window(id, int(at(starts, zone)), int(at(ends, zone)))


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-06-01", 24)])
def test_a_day_is_as_long_as_its_clock_says(day: str, hours: int) -> None:
    found = window("day", "Europe/Paris", at(f"{day}T12:00", "Europe/Paris"))
    assert found.ends_at - found.starts_at == hours * 3600


def test_a_midnight_that_is_skipped_is_the_moment_of_the_change() -> None:
    found = window("day", "Africa/Cairo", at("2026-04-24T12:00", "Africa/Cairo"))
    assert datetime.fromtimestamp(found.starts_at, ZoneInfo("Africa/Cairo")).isoformat() == "2026-04-24T01:00:00+03:00"


def test_a_midnight_that_comes_twice_is_the_first() -> None:
    zone = ZoneInfo("America/Havana")  # at one o'clock it becomes midnight again
    second = datetime(2026, 11, 1, 0, 30, tzinfo=zone, fold=1).timestamp()
    found = window("day", "America/Havana", second)
    assert found.id == "day:2026-11-01"
    assert found.ends_at - found.starts_at == 25 * 3600


def test_a_clock_that_goes_back_over_midnight_opens_no_window_twice() -> None:
    zone = ZoneInfo("America/St_Johns")  # until 2011 it went back at a minute past midnight
    before = datetime(2010, 11, 7, 0, 0, 30, tzinfo=zone).timestamp()
    assert [window("day", zone.key, before + later).id for later in (-60, 0, 60, 3599, 3660)] == [
        "day:2010-11-06",
        *["day:2010-11-07"] * 4,
    ]


@given(st.sampled_from(PERIODS), st.sampled_from(ZONES + ODD), SECONDS)
@example("day", "Pacific/Apia", int(at("2011-12-30T09:59:59")))
@example("day", "America/St_Johns", int(at("2010-11-07T02:45:00")))
@example("month", "Europe/Paris", int(at("2026-03-29T01:30:00")))
def test_windows_follow_one_another_without_gap_or_overlap(period: Period, zone: str, now: int) -> None:
    found = window(period, zone, now)
    assert found.starts_at <= now < found.ends_at
    for moment in (found.starts_at, found.ends_at - 1):
        assert window(period, zone, moment) == found
    following = window(period, zone, found.ends_at)
    assert following.starts_at == found.ends_at
    assert following.id != found.id


@given(st.sampled_from(PERIODS), st.sampled_from(ZONES + ODD), SECONDS, st.integers(0, 10))
def test_later_is_never_an_earlier_window(period: Period, zone: str, now: int, later: int) -> None:
    assert window(period, zone, now).starts_at <= window(period, zone, now + later * 1800).starts_at
