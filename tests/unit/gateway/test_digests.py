"""Digests name messages by content and conversations by content and order."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.digests import Chain, of_messages

MESSAGES = st.lists(st.binary(max_size=8), max_size=6)


def test_sixteen_bytes_each() -> None:
    assert [len(digest) for digest in of_messages([b"", b"a"])] == [16, 16]
    assert [len(link) for link in Chain(of_messages([b"", b"a"])).links(0)] == [16, 16]
    assert of_messages([]) == ()
    assert Chain([]).links(0) == []


@given(first=MESSAGES, second=MESSAGES)
def test_chains_agree_exactly_as_far_as_the_messages_do(first: list[bytes], second: list[bytes]) -> None:
    same = next((at for at, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), None)
    common = min(len(first), len(second)) if same is None else same
    chains = Chain(of_messages(first)).links(0), Chain(of_messages(second)).links(0)
    pairs = list(zip(*chains, strict=False))
    assert [a == b for a, b in pairs] == [at < common for at in range(len(pairs))]


def test_where_one_message_ends_matters() -> None:
    assert Chain(of_messages([b"ab", b"c"])).link(2) != Chain(of_messages([b"a", b"bc"])).link(2)


@given(messages=MESSAGES, after=st.integers(0, 8))
def test_links_are_the_same_however_many_are_asked_for(messages: list[bytes], after: int) -> None:
    chain = Chain(of_messages(messages))
    assert len(chain) == len(messages)
    assert chain.links(after) == chain.links(0)[after:]
    assert [chain.link(count) for count in range(1, len(chain) + 1)] == chain.links(0)
