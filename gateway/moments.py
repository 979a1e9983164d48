"""Moments as operators write them, and as they are told: a duration from now, or a date with or without a time.

Rule: what has no time zone is in UTC.
"""

from datetime import UTC, datetime
from typing import Final

from config.units import DURATION_EXPECTED, parse_duration

EXPECTED = f"{DURATION_EXPECTED}, or a moment such as 2026-12-31 or 2026-12-31T18:00+01:00"

FIRST_SECONDS: Final = 0.0
LAST_SECONDS: Final = datetime(9999, 12, 31, tzinfo=UTC).timestamp()


def moment_of(written: object, now: float) -> float:
    """Seconds since 1970 of `2h` (from now) or `2026-12-31T18:00Z`. Raises `ValueError` for anything else."""
    moment = _read(written, now)
    if not FIRST_SECONDS <= moment <= LAST_SECONDS:
        raise ValueError("expected a moment between the years 1970 and 9999")
    return moment


def _read(written: object, now: float) -> float:
    try:
        return now + parse_duration(written)
    except ValueError:
        pass
    try:
        found = datetime.fromisoformat(written.strip() if isinstance(written, str) else "")
    except ValueError:
        raise ValueError(f"expected {EXPECTED}") from None
    return (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()


def told(seconds: float) -> str:
    """A moment in ISO 8601, UTC, whole seconds."""
    return datetime.fromtimestamp(int(seconds), UTC).isoformat()
