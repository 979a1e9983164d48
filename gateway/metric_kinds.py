"""The kinds of metrics there are: plain numbers by label, and the family each is shown as.

Rule: adding to one is an addition in a dict, never a lock or a log line.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

Labels = tuple[str, ...]


class Counts:
    """A counter: `counts[labels] += n`, by `add`."""

    __slots__ = ("help", "labels", "name", "values")

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, description, labels
        self.values: dict[Labels, float] = defaultdict(float)

    def add(self, amount: float, *labels: str) -> None:
        self.values[labels] += amount

    def family(self) -> Metric:
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in list(self.values.items()):
            family.add_metric(labels, value)
        return family


class Levels:
    """A gauge: what was seen last."""

    __slots__ = ("help", "labels", "name", "values")

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, description, labels
        self.values: dict[Labels, float] = {}

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value

    def family(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in list(self.values.items()):
            family.add_metric(labels, value)
        return family


class Series:
    """One histogram of one set of labels. `observe` is on the path of every token."""

    __slots__ = ("_bounds", "buckets", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.buckets[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        running, rows = 0, []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self.buckets, strict=True):
            running += count
            rows.append((bound, float(running)))
        return rows


class Histogram:
    """Histograms by label."""

    __slots__ = ("_bounds", "help", "labels", "name", "series")

    def __init__(self, name: str, description: str, bounds: Sequence[float], *labels: str) -> None:
        self.name, self.help, self.labels, self._bounds = name, description, labels, bounds
        self.series: dict[Labels, Series] = {}

    def of(self, *labels: str) -> Series:
        if (series := self.series.get(labels)) is None:
            series = self.series[labels] = Series(self._bounds)
        return series

    def family(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for labels, series in list(self.series.items()):
            family.add_metric(labels, buckets=series.cumulative(), sum_value=series.total)
        return family


class Reading(NamedTuple):
    """Values that are read when somebody scrapes. `counts`: they only grow."""

    name: str
    help: str
    labels: Labels
    read: Callable[[], Iterable[tuple[Labels, float]]]
    counts: bool

    def family(self) -> Metric:
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        family: Metric = kind(self.name, self.help, labels=self.labels)
        for labels, value in self.read():
            family.add_metric(labels, value)  # type: ignore[attr-defined]  # both kinds have it
        return family
