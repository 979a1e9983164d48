"""What a scrape says of memory: what the system says, and what is remembered, added up by name."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from gateway import readings
from gateway.metrics import Metrics
from gateway.recent import Recent
from policies.covering import Cover
from policies.summary import Summary
from tests.house import sampled
from tests.unit.gateway.samples import caller, config
from tests.unit.gateway.wholes import snapshot


def remembering(*sizes: int) -> Recent[int, str]:
    kept: Recent[int, str] = Recent(100, len)
    for number, size in enumerate(sizes):
        kept.keep(number, "x" * size)
    return kept


def test_what_is_remembered_is_added_up_by_name() -> None:
    metrics = Metrics()
    memories = [("a", remembering(3, 4)), ("b", remembering()), ("a", remembering(5))]
    readings.register_memory(metrics, lambda: memories)
    text = metrics.render().decode()
    assert [sampled(text, "kvgate_remembered", what=what) for what in "ab"] == [12, 0]
    assert [sampled(text, "kvgate_remembered_most", what=what) for what in "ab"] == [200, 100]


def test_tenants_of_one_snapshot_remember_in_the_same_places() -> None:
    made, acme = snapshot(config()), caller()
    zeta = replace(acme, may=replace(acme.may, tenant="zeta"))
    one, other = made.service(acme, "demo"), made.service(zeta, "demo")
    before = dict(made.memories())
    assert one.paces[0] is other.paces[0] is before["predicted_seconds"]
    for service in (one, other):
        service.rendered.keep(Summary(Cover(1, 4), b"k", "FACTS", "framed", 20, 300))
    assert before["facts_characters"].weight == 2 * len("FACTS")


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell")
def test_memory_of_the_process_is_what_the_system_says() -> None:
    metrics = Metrics()
    readings.register_memory(metrics, list)
    found = sampled(metrics.render().decode(), "kvgate_resident_bytes")
    said = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    assert said / 2 < found < said * 2
