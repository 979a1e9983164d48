"""Faults as they are written, and whom they hit."""

import pytest

from loadtest.faults import KINDS, Fault, chosen, parse, parse_all


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_alone_hits_every_request(kind: str) -> None:
    fault = parse(kind)
    assert (fault.kind, fault.share) == (kind, 1.0)
    assert chosen([fault], 0, 1) == (fault,)


def test_items_are_a_share_and_numbers_by_name() -> None:
    assert parse("stall=0.25,after:5,seconds:2.5") == Fault("stall", 0.25, 5, 2.5)
    assert parse("status=code:429") == Fault("status", status=429)
    assert parse_all("cut=after:3 slow=seconds:1") == (Fault("cut", after_tokens=3), Fault("slow", seconds=1.0))
    assert parse_all("") == ()


@pytest.mark.parametrize("text", ["", "crash", "cut=lots", "cut=2", "cut=-1", "cut=after:x", "cut=speed:3", "cut=nan"])
def test_what_is_wrong_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="fault"):
        parse(text)


def test_a_share_hits_about_so_many_and_always_the_same() -> None:
    fault = Fault("cut", share=0.1)
    hit = [number for number in range(5_000) if chosen([fault], 3, number)]
    assert 400 < len(hit) < 600
    assert hit == [number for number in range(5_000) if chosen([fault], 3, number)]
    assert hit != [number for number in range(5_000) if chosen([fault], 4, number)]
