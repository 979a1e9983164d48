"""What a call writes to its session, as bytes."""

import pytest

from gateway.digests import Chain
from gateway.sessions import Progress

CHAIN = Chain([bytes([n]) * 16 for n in range(3)])
FIRST, SECOND, THIRD = CHAIN.links(0)


def test_records_are_21_bytes_a_message() -> None:
    records = Progress(CHAIN, tokens=[1, 256, 2**40], roles=["system", "user", "tool"]).records()
    assert records == FIRST + b"\0\0\0\1\1" + SECOND + b"\0\0\1\0\3" + THIRD + b"\xff\xff\xff\xff\5"
    assert len(records) == 21 * 3


def test_tokens_and_roles_may_be_left_out_or_unknown() -> None:
    assert Progress(CHAIN).records() == FIRST + bytes(5) + SECOND + bytes(5) + THIRD + bytes(5)
    assert Progress(CHAIN, roles=["user", "robot", "assistant"]).records()[20::21] == b"\3\0\4"
    assert Progress(CHAIN, roles=["tool"]).records()[20::21] == b"\0\0\5", "of the last so many"
    assert Progress(CHAIN, roles=["user", "tool"]).records(known=2)[20::21] == b"\3\5"
    assert Progress(Chain([])).records() == b""


def test_only_the_last_known_message_and_the_new_ones_are_written() -> None:
    whole = Progress(CHAIN, tokens=[1, 2, 3]).records()
    assert Progress(CHAIN, tokens=[1, 2, 3]).records(known=1) == whole
    assert Progress(CHAIN, tokens=[1, 2, 3]).records(known=2) == whole[21:]
    assert Progress(CHAIN, tokens=[1, 2, 3]).records(known=3) == whole[42:]


@pytest.mark.parametrize("progress", [Progress(CHAIN, tokens=[1]), Progress(CHAIN, roles=["user"] * 4)])
def test_what_does_not_go_together_is_a_defect(progress: Progress) -> None:
    with pytest.raises(ValueError, match="message by message"):
        progress.records()
