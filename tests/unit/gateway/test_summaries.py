"""What a process remembers of records: of each session its own, and not for longer than the store is asked."""

from dataclasses import replace

from gateway.counting import Counter
from gateway.service import Service
from gateway.summaries import Remembered
from tests.unit.gateway.samples import caller, model

NAME = b"n" * 16
SERVICE = Service(caller(), model(), (), Counter(len))


def test_a_record_is_remembered_for_its_own_session_and_tenant_only() -> None:
    other = Service(replace(caller(), may=replace(caller().may, tenant="zeta")), model(), (), Counter(len))
    kept = Remembered()
    kept.read(SERVICE, "one", {NAME: "text"}, 5.0)
    assert kept.of(SERVICE, "one", NAME, 0.0) == "text"
    assert kept.of(SERVICE, "two", NAME, 0.0) is kept.of(other, "one", NAME, 0.0) is None


def test_use_does_not_make_it_younger_so_the_store_is_asked_again_in_time() -> None:
    kept = Remembered()
    kept.read(SERVICE, "one", {NAME: "text"}, 5.0)
    kept.used(SERVICE, "one", NAME, "text", 100.0)
    assert kept.of(SERVICE, "one", NAME, 5.0) == "text" and kept.of(SERVICE, "one", NAME, 6.0) is None


def test_the_longest_unused_are_forgotten_first() -> None:
    kept = Remembered(most_characters=len("text") * 4)
    for number in range(4):
        kept.read(SERVICE, "one", {bytes([number]) * 16: "text"}, 1.0)
        kept.used(SERVICE, "one", b"\x00" * 16, "text", 1.0)
    assert kept.of(SERVICE, "one", b"\x00" * 16, 0.0) and kept.of(SERVICE, "one", b"\x03" * 16, 0.0)
    assert kept.of(SERVICE, "one", b"\x01" * 16, 0.0) is None
