"""Calendar windows: which minute, hour, day, week or month a moment belongs to, and when that window ends.

Rule: a pure function of the moment and the time zone, so nothing ever has to be reset. The windows of a period follow
one another without a gap and without an overlap, across changes of the clock too.

Days, weeks (from Monday) and months begin at midnight in their zone. A midnight that the clock skips is the moment of
the change, one that comes twice is the first of the two. Minutes and hours are those of UTC.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Literal, get_args
from zoneinfo import ZoneInfo

Period = Literal["minute", "hour", "day", "week", "month"]

PERIODS: tuple[Period, ...] = get_args(Period)
ABOUT_SECONDS: dict[Period, int] = {"minute": 60, "hour": 3_600, "day": 86_400, "week": 604_800, "month": 2_592_000}
"""How long a window is: exact for minute and hour, else usual."""


@dataclass(frozen=True, slots=True)
class Window:
    """One window. `id` names it among all windows; times in whole seconds since 1970, the end exclusive."""

    id: str
    starts_at: int
    ends_at: int


def window(period: Period, zone: str, now_seconds: float) -> Window:
    """The window that holds the moment `now_seconds` (since 1970). Raises `ZoneInfoNotFoundError` for no zone."""
    if period in ("minute", "hour"):
        return _of_clock(period, now_seconds)
    tz = ZoneInfo(zone)
    first = _first_day(period, datetime.fromtimestamp(now_seconds, tz).date())
    following = _next(period, first)
    if (ends_at := _midnight(following, tz)) <= now_seconds:  # the clock went back over midnight
        first, following = following, _next(period, following)
        ends_at = _midnight(following, tz)
    name = f"{first:%Y-%m}" if period == "month" else first.isoformat()
    return Window(f"{period}:{name}", _midnight(first, tz), ends_at)


def _of_clock(period: Period, now_seconds: float) -> Window:
    length = ABOUT_SECONDS[period]
    starts_at = int(now_seconds // length) * length
    shape = "%Y-%m-%dT%H:%M" if period == "minute" else "%Y-%m-%dT%H"
    return Window(f"{period}:{datetime.fromtimestamp(starts_at, UTC):{shape}}", starts_at, starts_at + length)


def _first_day(period: Period, day: date) -> date:
    match period:
        case "week":
            return day - timedelta(days=day.weekday())
        case "month":
            return day.replace(day=1)
        case _:
            return day


def _next(period: Period, first: date) -> date:
    match period:
        case "week":
            return first + timedelta(days=7)
        case "month":
            return (first + timedelta(days=31)).replace(day=1)
        case _:
            return first + timedelta(days=1)


def _midnight(day: date, tz: ZoneInfo) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=tz).timestamp())
