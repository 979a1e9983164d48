"""However the network cuts a stream, the client reads the same bytes."""

import asyncio
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from gateway.relay import Renaming
from tests.unit.gateway.streams import Stream, sent

NAMES = Renaming.between("llama", "gpt-4o-mini")
OLD, SPACED = b'"model":"llama"', b'"model": "llama"'

# Names and beginnings of names where they belong, and where they do not.
PARTS = st.sampled_from(
    [
        OLD,
        SPACED,
        SPACED[:9],
        OLD[:-1],
        OLD[:4],
        b'"model":',
        b'"',
        b"llama",
        b'"text":"x"',
        b",",
        rb"\"model\":\"llama\"",
    ]
)
FRAMES = st.lists(PARTS, max_size=5).map(lambda parts: b'data: {"choices":[{"text":"t"}],' + b"".join(parts) + b"}\n\n")


@given(
    frames=st.lists(FRAMES, min_size=1, max_size=4),
    cuts=st.lists(st.integers(min_value=1, max_value=400), max_size=12),
    ended=st.booleans(),
)
def test_renaming_does_not_depend_on_where_the_stream_is_cut(frames: list[bytes], cuts: list[int], ended: bool) -> None:
    whole = b"".join(frames) + (b"data: [DONE]\n\n" if ended else b"")
    borders = sorted({0, len(whole), *(cut for cut in cuts if cut < len(whole))})
    pieces = [whole[start:stop] for start, stop in pairwise(borders)]

    async def relayed() -> bytes:
        stream = Stream(renaming=NAMES)
        verdict = await stream.run(pieces)
        assert verdict == ("complete" if ended else "truncated")
        return sent(stream.client)

    assert asyncio.run(relayed()) == NAMES.apply(whole)
