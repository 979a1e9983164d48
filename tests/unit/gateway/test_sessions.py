"""What a call writes to its session, as bytes."""

import pytest

from gateway.sessions import Progress

CHAIN = [bytes([n]) * 16 for n in range(3)]


def test_records_are_21_bytes_a_message() -> None:
    records = Progress(CHAIN, tokens=[1, 256, 2**40], roles=["system", "user", "tool"]).records()
    assert records == b"".join(CHAIN) + b"\0\0\0\1" + b"\0\0\1\0" + b"\xff\xff\xff\xff" + b"\1\3\5"
    assert len(records) == 21 * 3


def test_tokens_and_roles_may_be_left_out_or_unknown() -> None:
    assert Progress(CHAIN).records() == b"".join(CHAIN) + bytes(15)
    assert Progress(CHAIN, roles=["user", "robot", "assistant"]).records()[-3:] == b"\3\0\4"
    assert Progress([]).records() == b""


@pytest.mark.parametrize("progress", [Progress(CHAIN, tokens=[1]), Progress(CHAIN, roles=["user"] * 4)])
def test_what_does_not_go_together_is_a_defect(progress: Progress) -> None:
    with pytest.raises(ValueError, match="message by message"):
        progress.records()
