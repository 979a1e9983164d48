"""Metrics as a scraper reads them."""

from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

from gateway.metrics import Metrics

Samples = Mapping[tuple[str, tuple[tuple[str, str], ...]], float]


def scraped(metrics: Metrics) -> Samples:
    """Every sample by name and labels, as the scraper's parser sees them."""
    families = text_string_to_metric_families(metrics.render().decode())
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for family in families for s in family.samples}


def labels(**given: str) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(given.items()))
