"""One `/metrics` page out of several workers' pages.

Rule: counters and histograms of the same labels are summed; a gauge is a worker's own and gets its number as a label,
because a sum of what each of them sees of one store would be nonsense.
"""

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.registry import Collector
from prometheus_client.samples import Sample

Series = tuple[str, tuple[tuple[str, str], ...]]


class _Merged(Collector):
    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


def merged(pages: Mapping[str, str]) -> bytes:
    """The pages by worker, as one page in the text exposition format."""
    families: dict[str, Metric] = {}
    sums: dict[str, dict[Series, float]] = {}
    for worker, page in pages.items():
        for family in text_string_to_metric_families(page):
            families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            _add(sums.setdefault(family.name, {}), family, worker)
    for name, family in families.items():
        family.samples = [Sample(series, dict(labels), value) for (series, labels), value in sums[name].items()]
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(families.values()))
    return generate_latest(registry)


def _add(sums: dict[Series, float], family: Metric, worker: str) -> None:
    for sample in family.samples:
        labels = dict(sample.labels)
        if family.type == "gauge":
            labels["worker"] = worker
        series = (sample.name, tuple(labels.items()))
        sums[series] = sums.get(series, 0.0) + sample.value
