"""One page of metrics out of several workers' pages."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from gateway.merging import merged
from gateway.metrics import Metrics
from tests.unit.gateway.scraping import labels

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def page(seconds: float, busy: float) -> str:
    metrics = Metrics()
    metrics.estimated.add(2, "acme")
    metrics.ttft.of("prefill", "main").observe(seconds)
    metrics.reading("kvgate_connections", "Open.", (), lambda: [((), busy)])
    return metrics.render().decode()


def read(text: str) -> Samples:
    families = text_string_to_metric_families(text)
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def test_counters_and_histograms_are_summed() -> None:
    found = read(merged({"0": page(0.3, 1), "1": page(0.02, 2)}).decode())
    series = {"phase": "prefill", "pool": "main"}
    assert found["kvgate_requests_estimated_total", labels(tenant="acme")] == 4
    assert found["kvgate_time_to_first_token_seconds_count", labels(**series)] == 2
    assert found["kvgate_time_to_first_token_seconds_bucket", labels(**series, le="0.025")] == 1
    assert found["kvgate_time_to_first_token_seconds_bucket", labels(**series, le="+Inf")] == 2


def test_a_gauge_is_each_workers_own() -> None:
    found = read(merged({"0": page(0.3, 1), "1": page(0.3, 2)}).decode())
    assert found["kvgate_connections", labels(worker="0")] == 1
    assert found["kvgate_connections", labels(worker="1")] == 2
    assert ("kvgate_connections", ()) not in found


def test_one_page_merged_is_that_page_but_for_its_gauges() -> None:
    alone = {key: value for key, value in read(page(0.3, 1)).items() if key[0] != "kvgate_connections"}
    found = read(merged({"0": page(0.3, 1)}).decode())
    assert {key: value for key, value in found.items() if key[0] != "kvgate_connections"} == alone


def test_no_pages_are_an_empty_page() -> None:
    assert merged({}) == b""
