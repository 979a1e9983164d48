"""Writers of records are left alone when they fail, each tenant's for itself."""

from dataclasses import replace

from gateway.counting import Counter
from gateway.service import Service
from gateway.tenants import Caller
from gateway.writers import SETTINGS, Writers
from tests.unit.gateway.samples import caller, model
from tests.unit.gateway.test_resting import source


def test_after_three_failures_in_a_row_it_rests_and_is_tried_with_one_call() -> None:
    writers, of = Writers(), source("one")
    for _ in range(SETTINGS.consecutive_failures):
        assert writers.admits(of, 0.0)
        writers.judge(of, "failure", 0.0, probed=writers.probes(of, 0.0))
    assert not writers.admits(of, 1.0)
    later = SETTINGS.open_seconds + 1
    assert writers.admits(of, later) and writers.probes(of, later)
    assert not writers.admits(of, later), "one at a time"
    writers.judge(of, "success", later, probed=True)
    assert writers.admits(of, later) and not writers.probes(of, later)


def test_what_is_nobodys_fault_counts_for_nothing() -> None:
    writers, of = Writers(), source("one")
    for _ in range(10):
        writers.judge(of, "neutral", 0.0, probed=False)
    assert writers.admits(of, 0.0)


def other_caller() -> Caller:
    one = caller()
    return replace(one, may=replace(one.may, tenant="zeta"))


def test_another_tenant_or_writer_is_another_matter() -> None:
    writers, of = Writers(), source("one")
    for _ in range(3):
        writers.judge(of, "failure", 0.0, probed=False)
    other = Service(other_caller(), model(), (), Counter(len))
    assert writers.admits(replace(of, service=other), 0.0)
    assert writers.admits(replace(of, policy=of.policy.model_copy(update={"model": "small"})), 0.0)
    assert not writers.admits(source("two"), 0.0)
