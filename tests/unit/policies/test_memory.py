"""Memory as bytes and back."""

from policies.memory import EMPTY, VERSION, Cut, InForce, Memory, Trim

FULL = Memory(
    enforced=InForce((Trim(b"d" * 16, "text", 900, 700, ((0, 10), (20, 30)), 0),), Cut(7, b"p" * 16)),
    shadow=InForce((Trim(b"e" * 16, "json", 90, 70, (), 4),)),
)


def test_memory_survives_its_bytes() -> None:
    assert Memory.loads(FULL.dumps()) == FULL
    assert Memory.loads(EMPTY.dumps()) == EMPTY


def test_memory_of_another_version_or_of_no_sense_is_forgotten() -> None:
    assert Memory.loads(Memory(FULL.enforced, FULL.shadow, VERSION + 1).dumps()) == EMPTY
    for junk in (b"", b"{", b"\xff\xfe", b"[]", b'{"enforced": {"cut": {"at": "x"}}}'):
        assert Memory.loads(junk) == EMPTY


def test_a_trim_takes_little_room() -> None:
    one = Memory(InForce((FULL.enforced.trims[0],) * 100))
    assert len(one.dumps()) / 100 < 160
