"""Whether memory is flat: how much it grows by each call, and how surely that is known.

Rule: flat is what is shown to be, not what was not seen to grow. The last two thirds of a run are cut into twelve
pieces; a line is laid through their means (means, because readings that follow one another are not independent), and
what it may rise with 95 % certainty has to stay below the bound. A run that is too short to tell is not flat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt
from statistics import fmean
from typing import Final

PIECES: Final = 12
STUDENT: Final = 1.812
"""95 in 100 values of Student's t with ten degrees of freedom lie below: a line through twelve points leaves ten."""
BOUND: Final = 4.0
"""Bytes a call. The smallest object that Python can leave behind takes 16, so one left by every fourth call is seen."""


@dataclass(frozen=True, slots=True)
class Reading:
    """Bytes that were in use when so many calls had been made."""

    calls: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes a call (which is kilobytes per 1,000 calls), and its standard error."""

    slope: float
    error: float

    @property
    def most(self) -> float:
        """What it is at most, with 95 % certainty."""
        return self.slope + STUDENT * self.error

    @property
    def flat(self) -> bool:
        return self.most < BOUND


UNKNOWN: Final = Growth(inf, inf)


def growth(readings: Sequence[Reading]) -> Growth:
    """Over the last two thirds of the readings; `UNKNOWN` if these are too few."""
    late = readings[len(readings) // 3 :]
    if len(late) < 2 * PIECES:
        return UNKNOWN
    pieces = [late[len(late) * n // PIECES : len(late) * (n + 1) // PIECES] for n in range(PIECES)]
    calls = [fmean(reading.calls for reading in piece) for piece in pieces]
    used = [fmean(reading.bytes for reading in piece) for piece in pieces]
    return _line(calls, used)


def _line(xs: Sequence[float], ys: Sequence[float]) -> Growth:
    """The least-squares line's slope, with the error that what it leaves unexplained gives it."""
    x, y = fmean(xs), fmean(ys)
    spread = sum((each - x) ** 2 for each in xs)
    if not spread:
        return UNKNOWN
    slope = sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / spread
    left = sum((b - y - slope * (a - x)) ** 2 for a, b in zip(xs, ys, strict=True))
    return Growth(slope, sqrt(left / (len(xs) - 2) / spread))
