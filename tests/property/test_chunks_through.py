"""However an engine frames a stream and the network cuts it, past the parser clients get what they get through it."""

import asyncio
from itertools import accumulate, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.chunks import body_of
from backends.connection import Connection
from backends.exchange import Exchange
from backends.sse import Scanner
from gateway.metric_kinds import Series
from gateway.relay import Relay, Renaming
from tests.property.test_sse_chunking import CALM, PIECES
from tests.unit.gateway.samples import responder
from tests.unit.gateway.streams import Pool, Wire, sent

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
SIZES = st.sampled_from([b"%x\r\n", b"%x\r\n", b"%x\r\n", b"%X\r\n", b"00%x\r\n", b"%x;name=value\r\n"])
ENDS = st.sampled_from([b"0\r\n\r\n", b"0\r\nname: value\r\n\r\n", b"0\r\n\r\nmore", b"no size\r\n", b""])


NAMES = Renaming.between("c", "gpt-4o-mini")
TEXTS = [b"%x" % 7**at for at in range(0, 12, 4)] + [rb"\"usage\":{}", b"\\\\", b'\\\\"}', b""]
HIDDEN = [b'a"},"finish_reason":"stop","b":{"c":"d', b'"},"usage":{"prompt_tokens":1},"b":{"c":"']
NAMED = [b'data: {"model":"c","choices":[{"index":0,"delta":{"content":"%b"}}]}\n\n' % text for text in TEXTS + HIDDEN]
ALIKE = st.lists(st.sampled_from(NAMED), max_size=8)


async def relayed(
    reads: list[bytes], *, through: bool, strip_usage: bool, renaming: Renaming | None
) -> tuple[object, ...]:
    """What the client has got of the body, and what is known of the stream."""
    loop = asyncio.get_running_loop()
    connection = Connection(Pool(), loop)
    connection.connection_made(Wire())
    answer, client = responder()
    exchange = Exchange(connection, loop, reused=False)
    scanner = Scanner(strip_usage=strip_usage)
    gaps = Series((1.0,))
    relay = Relay(answer, (), scanner, clock=lambda: 1.0, gaps=gaps, on_first=lambda: None, renaming=renaming)
    connection.send(exchange, b"", 0.0)
    exchange.pipe(relay.received, relay.passed if through else None)
    for read in reads:
        connection.data_received(read)
    ended = exchange.done.done() and exchange.done.exception() is None
    return (
        sent(client), scanner.frames, scanner.usage, scanner.finish_reasons, scanner.error, scanner.done,
        answer.sent_bytes, ended, sum(gaps.buckets), connection.late(0.5),
    )  # fmt: skip


def both(
    reads: list[bytes], *, strip_usage: bool, renaming: Renaming | None
) -> tuple[tuple[object, ...], tuple[object, ...]]:
    async def run() -> tuple[tuple[object, ...], tuple[object, ...]]:
        return (
            await relayed(reads, through=True, strip_usage=strip_usage, renaming=renaming),
            await relayed(reads, through=False, strip_usage=strip_usage, renaming=renaming),
        )

    return asyncio.run(run())


@settings(max_examples=150, deadline=None)
@given(
    begin=st.sampled_from([CALM, NAMED[:2]]),
    frames=st.tuples(ALIKE, PIECES).map(lambda parts: parts[0] + parts[1]),
    size=SIZES,
    end=ENDS,
    together=st.lists(st.integers(1, 3), max_size=12),
    cuts=st.lists(st.integers(0, 4000), max_size=6),
    bound=st.booleans(),
    strip_usage=st.booleans(),
    renaming=st.sampled_from([None, NAMES]),
)
def test_past_the_parser_and_through_it(
    begin: list[bytes],
    frames: list[bytes],
    size: bytes,
    end: bytes,
    together: list[int],
    cuts: list[int],
    bound: bool,
    strip_usage: bool,
    renaming: Renaming | None,
) -> None:
    chunks = [size % len(frame) + frame + b"\r\n" for frame in begin + frames]
    if bound:  # reads are whole chunks
        borders = [*accumulate([1, 1, *together, len(chunks)], initial=0)]
        reads = [HEAD, *(b"".join(chunks[start:stop]) for start, stop in pairwise(borders)), end]
        reads = [read for read in reads if read]
    else:
        whole = HEAD + b"".join(chunks) + end
        borders = [0, *sorted(cut % (len(whole) + 1) for cut in cuts), len(whole)]
        reads = [whole[start:stop] for start, stop in pairwise(borders) if start < stop]
    passed, parsed = both(reads, strip_usage=strip_usage, renaming=renaming)
    assert passed == parsed


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from(NAMED), min_size=1, max_size=3), max_size=6), st.sampled_from([None, NAMES]))
def test_frames_that_differ_in_more_than_their_text(groups: list[list[bytes]], renaming: Renaming | None) -> None:
    reads = [b"".join([b"%x\r\n%b\r\n" % (len(frame), frame) for frame in group]) for group in groups]
    begin = [b"%x\r\n%b\r\n" % (len(frame), frame) for frame in NAMED[:2]]
    passed, parsed = both([HEAD, *begin, *reads], strip_usage=True, renaming=renaming)
    assert passed == parsed


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.binary(min_size=1, max_size=300), SIZES), min_size=1, max_size=4), st.data())
def test_whole_chunks_are_known_and_nothing_less(chunks: list[tuple[bytes, bytes]], data: st.DataObject) -> None:
    read = b"".join([size % len(body) + body + b"\r\n" for body, size in chunks])
    plain = not any(b";" in size for _, size in chunks)
    assert body_of(read) == (b"".join([body for body, _ in chunks]) if plain else None)
    cut = data.draw(st.integers(1, len(read) - 1))
    borders = {sum(len(size % len(body)) + len(body) + 2 for body, size in chunks[:count]) for count in range(5)}
    if cut not in borders:
        assert body_of(read[:cut]) is None


async def test_what_looks_like_a_chunk_within_a_chunk_is_data() -> None:
    frames = [
        b'data: {"model":"c","choices":[{"index":0,"delta":{"content":"%d"}}]}\n\n' % number for number in range(3)
    ]
    inner = b"".join(b"%x\r\n%b\r\n" % (len(frame), frame) for frame in frames)
    outer = b"%x\r\n" % (len(CALM[0]) + len(inner) + 2)
    calm = b"%x\r\n%b\r\n" % (len(CALM[0]), CALM[0])
    for before in ([calm], [calm, calm]):
        reads = [HEAD, *before, outer + CALM[0], inner, b"\n\n\r\n"]
        passed = await relayed(reads, through=True, strip_usage=True, renaming=None)
        assert passed == await relayed(reads, through=False, strip_usage=True, renaming=None)
