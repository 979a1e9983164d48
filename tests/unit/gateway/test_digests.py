"""Digests name messages by content and conversations by content and order."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.digests import chained, of_messages

MESSAGES = st.lists(st.binary(max_size=8), max_size=6)


def test_sixteen_bytes_each() -> None:
    assert [len(digest) for digest in of_messages([b"", b"a"])] == [16, 16]
    assert of_messages([]) == chained([]) == ()


@given(first=MESSAGES, second=MESSAGES)
def test_chains_agree_exactly_as_far_as_the_messages_do(first: list[bytes], second: list[bytes]) -> None:
    same = next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    common = min(len(first), len(second)) if same is None else same
    chains = chained(of_messages(first)), chained(of_messages(second))
    pairs = list(zip(*chains, strict=False))
    assert [a == b for a, b in pairs] == [at < common for at in range(len(pairs))]


def test_where_one_message_ends_matters() -> None:
    assert chained(of_messages([b"ab", b"c"]))[-1] != chained(of_messages([b"a", b"bc"]))[-1]
