"""What a scraper reads: names, labels and cumulated buckets that Prometheus' own parser takes."""

from collections.abc import Iterable

import pytest

from gateway.metric_kinds import Labels, Series
from gateway.metrics import MAX_TENANTS, OTHER, TOKEN_SECONDS, TTFT_SECONDS, Metrics
from tests.unit.gateway.scraping import labels, scraped


def test_counters_add_up_by_label() -> None:
    metrics = Metrics()
    for outcome in ("ok", "ok", "denied"):
        metrics.requests.add(1, "acme", "standard", "main", outcome)
    found = scraped(metrics)
    who = {"tenant": "acme", "tier": "standard", "pool": "main"}
    assert found["kvgate_requests_total", labels(**who, outcome="ok")] == 2
    assert found["kvgate_requests_total", labels(**who, outcome="denied")] == 1


def test_labels_may_hold_anything() -> None:
    metrics = Metrics()
    metrics.estimated.add(1, 'a"b\\c\nd')
    assert scraped(metrics)["kvgate_requests_estimated_total", labels(tenant='a"b\\c\nd')] == 1


def test_a_histogram_is_cumulated() -> None:
    series = Series((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 9.0):
        series.observe(value)
    assert series.cumulative() == [("1.0", 2.0), ("2.0", 3.0), ("+Inf", 4.0)]
    assert series.total == 12.0


def test_the_phases_have_histograms_of_their_own() -> None:
    metrics = Metrics()
    metrics.ttft.of("prefill", "main").observe(0.3)
    metrics.itl.of("decode", "main").observe(0.004)
    found = scraped(metrics)
    prefill, decode = {"phase": "prefill", "pool": "main"}, {"phase": "decode", "pool": "main"}
    assert found["kvgate_time_to_first_token_seconds_count", labels(**prefill)] == 1
    assert found["kvgate_time_to_first_token_seconds_bucket", labels(**prefill, le="0.25")] == 0
    assert found["kvgate_time_to_first_token_seconds_bucket", labels(**prefill, le="0.5")] == 1
    assert found["kvgate_inter_token_latency_seconds_sum", labels(**decode)] == 0.004
    assert ("kvgate_time_to_first_token_seconds_count", labels(**decode)) not in found


@pytest.mark.parametrize("bounds", [TTFT_SECONDS, TOKEN_SECONDS])
def test_bounds_ascend(bounds: Iterable[float]) -> None:
    assert sorted(set(bounds)) == list(bounds)


def test_readings_are_read_at_every_scrape() -> None:
    metrics = Metrics()
    now: list[tuple[Labels, float]] = []
    metrics.reading("kvgate_up", "1.", ("replica",), lambda: now)
    assert ("kvgate_up", labels(replica="a")) not in scraped(metrics)
    now.append((("a",), 1.0))
    assert scraped(metrics)["kvgate_up", labels(replica="a")] == 1


def test_the_number_of_tenants_shown_is_capped() -> None:
    metrics = Metrics()
    shown = {metrics.tenant(f"tenant-{number}") for number in range(MAX_TENANTS + 10)}
    assert len(shown) == MAX_TENANTS + 1
    assert OTHER in shown
    assert metrics.tenant("tenant-0") == "tenant-0"


def test_every_metric_is_ours_and_explained() -> None:
    families = list(Metrics().collect())
    assert len(families) == len({family.name for family in families})
    assert all(family.name.startswith("kvgate_") and family.documentation for family in families)
