"""However the network cuts a stream, the scanner finds the same facts and sends on the same bytes."""

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.sse import Scanner

COUNTS = st.integers(0, 10**6)
USAGES = st.fixed_dictionaries(
    {"prompt_tokens": COUNTS, "completion_tokens": COUNTS},
    optional={"prompt_tokens_details": st.none() | st.fixed_dictionaries({"cached_tokens": COUNTS})},
)
TEXTS = st.text(max_size=12) | st.sampled_from(
    ['"usage":{}', "data: [DONE]\n\n", "\r\n\r\n", '","finish_reason":"stop', "\\"]
)
CHOICES = st.fixed_dictionaries(
    {"index": st.integers(0, 1), "finish_reason": st.sampled_from([None, None, None, "stop", "length"])},
    optional={
        "delta": st.fixed_dictionaries({}, optional={"content": TEXTS, "role": st.just("assistant")}),
        "text": TEXTS,
    },
)
OPENAI = st.fixed_dictionaries(
    {"id": st.just("c"), "choices": st.lists(CHOICES, max_size=2)},
    optional={"usage": st.none() | USAGES, "error": st.none() | st.fixed_dictionaries({"message": TEXTS})},
)
TGI = st.fixed_dictionaries(
    {"token": st.fixed_dictionaries({"text": TEXTS, "special": st.booleans()}), "generated_text": st.none() | TEXTS}
)
ENDS = st.sampled_from([b"\n", b"\n", b"\r\n", b"\r"])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    end = draw(ENDS)
    kind = draw(st.integers(0, 9))
    if kind == 0:
        lines = [draw(st.sampled_from([b": keep-alive", b"", b"event: ping", b"data: [DONE]", b"data:"]))]
    elif kind == 1:  # no JSON, and no UTF-8 either
        lines = [b"data: " + draw(st.binary(max_size=20)).replace(b"\n", b"").replace(b"\r", b"")]
    elif kind == 2:  # one object over several data lines
        lines = [b"data: " + line.encode() for line in json.dumps(draw(OPENAI), indent=1).splitlines()]
    else:
        tight = draw(st.booleans())
        body = json.dumps(
            draw(OPENAI | TGI), separators=(",", ":") if tight else None, ensure_ascii=draw(st.booleans())
        )
        lines = [b"data: " + body.encode()]
    return end.join([*lines, b"", b""])


TYPICAL = [
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n' % text
    for text in (b"a", b"b c", b"\\n", b'\\"', b"\xff", b"")
]
CALM = [TYPICAL[0], TYPICAL[1]]  # after these the scanner passes plain frames unread
PIECES = st.lists(frames() | st.sampled_from(TYPICAL), max_size=12)
STREAMS = PIECES.map(b"".join) | PIECES.map(lambda pieces: b"".join(CALM + pieces)) | st.binary(max_size=40)


def facts(scanner: Scanner) -> tuple[object, ...]:
    verdict = scanner.finish()
    return (
        verdict, scanner.usage, scanner.frames, scanner.first_content, dict(scanner.finish_reasons), scanner.error,
        scanner.done,
    )  # fmt: skip


def passed(stream: bytes, cuts: list[int], strip_usage: bool) -> tuple[bytes, tuple[object, ...]]:
    scanner = Scanner(strip_usage=strip_usage)
    borders = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    out = b"".join([scanner.feed(stream[start:stop]) for start, stop in pairwise(borders)])
    found = facts(scanner)
    return out + scanner.tail, found


@settings(max_examples=400, deadline=None)
@given(STREAMS, st.lists(st.integers(0, 2000), max_size=15), st.booleans())
def test_cuts_change_nothing(stream: bytes, cuts: list[int], strip_usage: bool) -> None:
    whole = passed(stream, [], strip_usage)
    assert passed(stream, cuts, strip_usage) == whole
    assert passed(stream, list(range(len(stream))), strip_usage) == whole
    if not strip_usage:
        assert whole[0] == stream


@settings(max_examples=200, deadline=None)
@given(PIECES.map(lambda pieces: CALM + pieces), st.integers(1, 3))
def test_pieces_that_are_whole_frames_change_nothing(pieces: list[bytes], together: int) -> None:
    stream = b"".join(pieces)
    lengths = [sum(len(piece) for piece in pieces[:count]) for count in range(0, len(pieces), together)]
    assert passed(stream, lengths, True) == passed(stream, [], True)


@settings(max_examples=200, deadline=None)
@given(st.lists(OPENAI, max_size=8))
def test_what_is_removed_is_the_usage_frame_and_nothing_else(bodies: list[dict[str, object]]) -> None:
    pieces = [b"data: " + json.dumps(body).encode() + b"\n\n" for body in bodies]
    kept = [
        piece
        for piece, body in zip(pieces, bodies, strict=True)
        if body["choices"] or not body.get("usage") or body.get("error") is not None
    ]
    assert passed(b"".join(pieces), [], True)[0] == b"".join(kept)
