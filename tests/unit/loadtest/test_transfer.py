"""Leases on prefilled blocks and the parameters that name them."""

from loadtest.transfer import Leases, handed_over, source_of, wants_remote_decode
from tests.unit.loadtest.stepping import sequence


def test_a_lease_is_fetched_once_and_only_by_its_names() -> None:
    leases, work = Leases(30.0), sequence("a", range(4), 1)
    leases.grant("r1", work, 0.0)
    assert leases.fetch("another engine", "r1") is None
    assert leases.fetch(leases.engine_id, "r2") is None
    assert leases.fetch(leases.engine_id, "r1") is work
    assert leases.fetch(leases.engine_id, "r1") is None


def test_a_lease_expires_once() -> None:
    leases, work = Leases(30.0), sequence("a", range(4), 1)
    assert leases.next_expiry_seconds is None
    leases.grant("r1", work, 0.0)
    assert leases.next_expiry_seconds == 30.0
    assert leases.expire(29.9) == []
    assert leases.expire(30.0) == [work]
    assert leases.expire(31.0) == [] and leases.fetch(leases.engine_id, "r1") is None


def test_what_a_prefill_leg_answers_is_what_a_decode_leg_reads() -> None:
    leases, work = Leases(30.0), sequence("a", range(9), 1)
    work.cached_tokens = 4
    source = source_of(handed_over(leases, "r1", work, "10.0.0.1", 9001))
    assert source is not None
    assert (source.engine_id, source.request_id) == (leases.engine_id, "r1")
    assert (source.host, source.port, source.tokens, source.cached_tokens) == ("10.0.0.1", 9001, 9, 4)


def test_incomplete_parameters_mean_compute_it_here() -> None:
    assert source_of(None) is None
    assert source_of({}) is None
    assert source_of({"do_remote_prefill": True, "remote_engine_id": "x"}) is None


def test_the_prefill_leg_is_told_by_one_flag() -> None:
    assert wants_remote_decode({"do_remote_decode": True})
    assert not wants_remote_decode({"do_remote_prefill": True}) and not wants_remote_decode(None)
