"""What a soak saw, and what of it is not as it must be.

Rule: what was taken has been given back, and memory is flat by two measures. Resident memory tells what the system has
given; but what was freed once is used again before that grows, so the blocks of Python's objects are counted as well,
those set aside that what is remembered takes, which comes and goes. What is remembered was at its bounds all the time,
so that filling up is not called a leak, nor a leak filling up.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from bench.flat import Growth, growth

MOST_BYTES: Final = 4.0
"""Of resident memory, by each call: a quarter of the smallest object that Python can leave behind."""
MOST_BLOCKS: Final = 0.02
"""Of Python's objects, by each call: one left behind by every fiftieth."""
GARBAGE: Final = 0.01
"""Objects a call that the garbage collector may find: calls leave none, a scrape of the metrics leaves a few."""
FULL: Final = 0.5
"""Of its bound, what a memory holds at least that has forgotten something."""
FILLING: Final = 0.01
"""Of its bound, what another may take in while it is looked at: some are kept small by other bounds, as of sessions."""
LEFT: Final = ("in_flight", "requests_open", "waiting")
WRONG: Final = ("task_failures", "context_violations")
LATE: Final = ("store_timeouts", "store_unwritten")

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Reading:
    """The gateway's metrics by name, when so many calls had been made."""

    calls: int
    figures: Figures


@dataclass(frozen=True)
class Account:
    """`full_rate` in calls a second; `before` and `after` are the gateway's metrics, by name."""

    full_rate: float
    seconds: float
    outcomes: Mapping[str, int]
    readings: Sequence[Reading]
    before: Figures
    after: Figures
    reservations: int

    @property
    def calls(self) -> int:
        return sum(self.outcomes.values())

    @cached_property
    def bytes_growth(self) -> Growth:
        """Of resident memory."""
        return growth(self._calls, self._column("kvgate_resident_bytes"))

    @cached_property
    def blocks_growth(self) -> Growth:
        """Of Python's objects, but for what is remembered and for calls that run."""
        explained = [f"kvgate_remembered {name}" for name in self._names]
        columns = [self._column(name) for name in ("kvgate_requests_open", *explained)]
        return growth(self._calls, self._column("kvgate_python_blocks"), columns)

    @property
    def _calls(self) -> Sequence[float]:
        return [float(reading.calls) for reading in self.readings]

    def _column(self, name: str) -> Sequence[float]:
        return [reading.figures.get(name, 0.0) for reading in self.readings]

    @property
    def garbage(self) -> float:
        """Objects a call that the garbage collector found."""
        return self._more("garbage_objects") / max(1, self.calls)

    @cached_property
    def problems(self) -> Sequence[str]:
        """What is not as it must be, each in a few words."""
        left = [name for name in LEFT if self.after.get(f"kvgate_{name}")]
        wrong = [name for name in WRONG if self.after.get(f"kvgate_{name}_total")]
        filling = [f"{name} was not full: what it took is not told from a leak" for name in self._filling()]
        others = {
            "reservations_open": self.reservations > 0,
            "memory grows, or the run is too short to tell": not self.bytes_growth.most < MOST_BYTES,
            "objects are left behind, or the run is too short to tell": not self.blocks_growth.most < MOST_BLOCKS,
            "garbage": self.garbage > GARBAGE,
            "silent ends": self.outcomes.get("silent", 0) > 0,
        }
        return [*left, *wrong, *filling, *[name for name, so in others.items() if so]]

    def told(self) -> Mapping[str, object]:
        """All of it, for people."""
        resident = self._column("kvgate_resident_bytes")
        late = resident[len(resident) // 3 :]
        return {
            "calls": self.calls,
            "calls_a_second": {"at full load": self.full_rate, "in the soak": self.calls / self.seconds},
            "outcomes": dict(self.outcomes),
            "memory_megabytes": {
                "begin": resident[0] / 1e6,
                "last two thirds": [min(late) / 1e6, max(late) / 1e6],
                "end": resident[-1] / 1e6,
            },
            "bytes_a_call": _told(self.bytes_growth, MOST_BYTES),
            "objects_a_call": _told(self.blocks_growth, MOST_BLOCKS),
            "garbage_objects_a_call": self.garbage,
            "remembered_before_and_after_of": {
                name: [figures[f"kvgate_{kind} {name}"] for kind, figures in self._kinds] for name in self._names
            },
            "reservations_open": self.reservations,
            **{name: self.after.get(f"kvgate_{name}", 0.0) for name in LEFT},
            **{name: self.after.get(f"kvgate_{name}_total", 0.0) for name in WRONG},
            **{name: self._more(name) for name in LATE},
        }

    @property
    def _kinds(self) -> Sequence[tuple[str, Figures]]:
        return ("remembered", self.before), ("remembered", self.after), ("remembered_most", self.after)

    @property
    def _names(self) -> Sequence[str]:
        """What can be remembered."""
        return sorted(name.split()[1] for name in self.after if name.startswith("kvgate_remembered "))

    def _filling(self) -> Sequence[str]:
        """What went on to fill while memory was looked at."""
        found = {
            name: [figures.get(f"kvgate_{kind} {name}", 0.0) for kind, figures in self._kinds] for name in self._names
        }
        return [
            name
            for name, (before, after, most) in found.items()
            if before < FULL * most and after > before + FILLING * most
        ]

    def _more(self, name: str) -> float:
        key = f"kvgate_{name}_total"
        return self.after.get(key, 0.0) - self.before.get(key, 0.0)


def _told(grown: Growth, bound: float) -> Mapping[str, float]:
    return {"slope": grown.slope, "error": grown.error, "at most": grown.most, "bound": bound}
