"""Whether something is flat: how much it grows by each call, and how surely that is known.

Rule: flat is what is shown to be, not what was not seen to grow. The last two thirds of a run are cut into 24 pieces; a
line is laid through their means (means, because readings that follow one another are not independent), and what it may
rise with 95 % certainty has to stay below a bound. A run that is too short to tell is not flat.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf, sqrt
from statistics import fmean
from typing import Final

PIECES: Final = 24
LEAST_FREEDOM: Final = 10
STUDENT: Final = 1.812
"""95 in 100 values of Student's t with ten degrees of freedom lie below, and more of those with more."""
NOTHING: Final = 1e-9
"""What is left of a column, in parts of it, when others explain it but for rounding."""

Column = Sequence[float]


@dataclass(frozen=True, slots=True)
class Growth:
    """What comes with each call, and its standard error."""

    slope: float
    error: float

    @property
    def most(self) -> float:
        """What it is at most, with 95 % certainty."""
        return self.slope + STUDENT * self.error


UNKNOWN: Final = Growth(inf, inf)


def growth(calls: Column, values: Column, explained: Sequence[Column] = ()) -> Growth:
    """Of `values`, one for each reading, by the calls made until then; `UNKNOWN` if they are too few to tell.

    What goes up and down with the columns in `explained` is taken out first. (The regression of what they leave of the
    values on what they leave of the calls: R. Frisch and F. Waugh, 1933.)
    """
    late = [column[len(column) // 3 :] for column in (calls, values, *explained)]
    if len(late[0]) < 2 * PIECES:
        return UNKNOWN
    x, y, *others = [_centred(_means(column)) for column in late]
    whole, *sizes = [_dot(column, column) for column in (x, *others)]
    freedom = PIECES - 2
    for size in sizes:
        column, *others = others
        if _dot(column, column) > NOTHING * size:
            freedom -= 1
            x, y, *others = [_without(each, column) for each in (x, y, *others)]
    if freedom < LEAST_FREEDOM or (spread := _dot(x, x)) <= NOTHING * whole:
        return UNKNOWN
    slope = _dot(x, y) / spread
    left = [b - slope * a for a, b in zip(x, y, strict=True)]
    return Growth(slope, sqrt(_dot(left, left) / freedom / spread))


def _means(column: Column) -> Column:
    """Of each piece."""
    ends = [len(column) * number // PIECES for number in range(PIECES + 1)]
    return [fmean(column[start:end]) for start, end in pairwise(ends)]


def _centred(column: Column) -> Column:
    mean = fmean(column)
    return [value - mean for value in column]


def _without(column: Column, other: Column) -> Column:
    """What is left of a column when the other has explained what it can."""
    share = _dot(column, other) / _dot(other, other)
    return [a - share * b for a, b in zip(column, other, strict=True)]


def _dot(one: Column, other: Column) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
