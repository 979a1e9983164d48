"""What the scanner knows of a stream is what reading every frame of it would tell, though it reads few of them.

The other reading here splits lines as the WHATWG's text does, and decodes all there is.
"""

import json
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from backends.frames import Facts, read_frame
from backends.sse import Scanner
from tests.property.test_sse_chunking import CALM, ENDS, TEXTS

ODD: st.SearchStrategy[object] = st.sampled_from([None, 0, 5, -1, 1.5, True, "7", [], {}, 10**19])
COUNTS = st.integers(0, 9) | ODD
DETAILS = st.none() | st.fixed_dictionaries({}, optional={"cached_tokens": COUNTS, "reasoning_tokens": COUNTS})
USAGES = ODD | st.fixed_dictionaries(
    {},
    optional={
        "prompt_tokens": COUNTS,
        "completion_tokens": COUNTS,
        "prompt_tokens_details": DETAILS,
        "completion_tokens_details": DETAILS,
    },
)
DELTAS = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "content": st.none() | TEXTS,
        "role": st.just("assistant"),
        "reasoning": TEXTS,
        "tool_calls": st.lists(st.fixed_dictionaries({"arguments": TEXTS}), max_size=1),
        "usage": USAGES,
    },
)
CHOICES = st.lists(
    st.fixed_dictionaries(
        {"index": st.sampled_from([0, 0, 1, None, -1]), "delta": DELTAS},
        optional={
            "text": TEXTS,
            "finish_reason": st.sampled_from([None, None, "stop", "length", ""]),
            "logprobs": st.sampled_from([None, {"error": None}, {"usage": None}]),
        },
    ),
    max_size=2,
)
BODIES = st.fixed_dictionaries(
    {"choices": st.none() | CHOICES | st.just([])},
    optional={
        "usage": USAGES,
        "error": st.sampled_from([None, {"message": "m"}, "boom", 5, ""]),
        "object": st.sampled_from(["chat.completion.chunk", "error"]),
    },
)
SPACES = st.sampled_from([(",", ":"), (",", ":"), (", ", ": "), (" ,", " : ")])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    end = draw(ENDS)
    match draw(st.integers(0, 9)):
        case 0:
            lines = [
                draw(st.sampled_from([b": ka", b"", b"event: x", b"data", b"data:", b" data: {}", b"data: [DONE]"]))
            ]
        case 1:
            lines = [b"data:" + draw(st.binary(max_size=9)).replace(b"\n", b"").replace(b"\r", b"")]
        case _:
            body = json.dumps(draw(BODIES), separators=draw(SPACES), ensure_ascii=draw(st.booleans()))
            lines = [draw(st.sampled_from([b"data: ", b"data:"])) + body.encode()]
            lines = draw(st.sampled_from([lines, lines, [b": c", *lines], [b"event: message", *lines]]))
    return end.join([*lines, b"", b""])


def split(stream: bytes) -> list[tuple[bytes, list[bytes]]]:
    """Each frame, blank line included, with its lines; what is left at the end of the stream is a frame too."""
    found: list[tuple[bytes, list[bytes]]] = []
    raw, lines = b"", list[bytes]()
    for line in stream.splitlines(keepends=True):  # of bytes: LF, CR and CRLF end a line, nothing else does
        raw += line
        if bare := line.rstrip(b"\r\n"):
            lines.append(bare)
        else:
            found.append((raw, lines))
            raw, lines = b"", []
    return [*found, (raw, lines)] if raw else found


def read_all(stream: bytes, *, strip_usage: bool) -> tuple[Facts, bytes]:
    """The facts of a stream of which every frame is decoded, and what of it goes to the client."""
    facts, out = Facts(), b""
    for raw, lines in split(stream):
        data = [line[5:].removeprefix(b" ") for line in lines if line.startswith(b"data:")]
        removed = bool(data) and read_frame(facts, b"\n".join(data)) and strip_usage
        out += b"" if removed else raw
    return facts, out


def told(facts: Facts) -> tuple[object, ...]:
    return facts.usage, facts.error, facts.done, facts.finish_reasons, facts.first_content


STREAMS = st.tuples(st.sampled_from([[], CALM]), st.lists(frames(), max_size=8)).map(
    lambda parts: b"".join([*parts[0], *parts[1]])
)


@settings(max_examples=400)
@given(STREAMS, st.lists(st.integers(0, 2_000), max_size=6), st.booleans(), st.integers(0, 40))
def test_frames_that_are_not_read_would_have_told_nothing(
    stream: bytes, cuts: list[int], strip_usage: bool, missing: int
) -> None:
    stream = stream[: len(stream) - missing] if missing > 20 else stream
    facts, out = read_all(stream, strip_usage=strip_usage)
    scanner = Scanner(strip_usage=strip_usage)
    borders = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    sent = b"".join([scanner.feed(stream[start:stop]) for start, stop in pairwise(borders)])
    scanner.finish()
    assert told(scanner) == told(facts)
    assert sent + scanner.tail == out
