"""Whatever is known again by its bytes, llhttp reads as the very same request, and as nothing more."""

import httptools
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.call import Request
from gateway.known_head import KnownHead

MOST_BYTES = 1_000


class Reading:
    """What llhttp makes of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.bodies: list[bytes] = []
        self.urls: list[bytes] = []
        self.messages = 0
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.urls.append(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        name = name.lower()
        self.headers[name] = self.headers[name] + b", " + value if name in self.headers else value

    def on_body(self, data: bytes) -> None:
        self.bodies.append(data)

    def on_message_complete(self) -> None:
        self.messages += 1
        self.keep_alive = self.parser.should_keep_alive()

    def request(self) -> Request:
        return Request("POST", self.urls[0].decode(), self.headers, b"".join(self.bodies), self.keep_alive)


def sent(lines: list[bytes], body: bytes, length: int | None = None) -> bytes:
    """A request; `length` is what it says of its body, where that is not true."""
    said = b"Content-Length: %d" % (len(body) if length is None else length)
    return b"\r\n".join((b"POST /v1/chat/completions HTTP/1.1", *lines, said, b"Accept: */*", b"", body))


lines = st.lists(
    st.sampled_from(
        (
            b"Host: a",
            b"Authorization: Bearer sk-1",
            b"Authorization: Bearer sk-2",
            b"X-Session-Id: content-length: 3",
            b"Connection: keep-alive",
            b"Connection: close",
            b"Expect: 100-continue",
            b"Upgrade: h2c",
        )
    ),
    max_size=4,
)
bodies = st.sampled_from((b"{}", b"{ }", b"[1, 2]", b"Accept: */*\r\n\r\n{}", b"x" * 40)) | st.binary(
    min_size=1, max_size=30
)


@given(
    before=lines,
    now=lines | st.none(),
    first=bodies,
    second=bodies,
    length=st.none() | st.integers(0, 60),
    tail=bodies | st.just(b""),
)
@example(before=[], now=None, first=b"{}", second=b"{}", length=None, tail=b"")
def test_known_again_is_what_llhttp_reads(
    before: list[bytes], now: list[bytes] | None, first: bytes, second: bytes, length: int | None, tail: bytes
) -> None:
    data = sent(before, first)
    try:
        reading = Reading(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade):
        return
    known = KnownHead.of(data, reading.request(), MOST_BYTES)
    if known is None:
        return
    data = sent(before if now is None else now, second, length) + tail
    again = known.again(data)
    if again is None:
        return
    read = Reading(data)
    assert read.messages == 1
    expected = read.request()
    assert again.body == expected.body
    assert {**again.headers, b"content-length": b""} == {**expected.headers, b"content-length": b""}
    assert (again.method, again.path, again.keep_alive, again.http10) == ("POST", expected.path, True, False)


@given(
    before=lines.filter(lambda given: not any(line.startswith((b"Conn", b"Exp", b"Upg")) for line in given)),
    first=bodies,
    second=bodies,
)
def test_the_same_head_is_known_again(before: list[bytes], first: bytes, second: bytes) -> None:
    data = sent(before, first)
    try:
        reading = Reading(data)
    except httptools.HttpParserError:
        return
    known = KnownHead.of(data, reading.request(), MOST_BYTES)
    assert known is not None
    again = known.again(sent(before, second))
    assert again is not None
    assert again.body == second


def test_a_body_over_the_limit_is_left_to_the_parser() -> None:
    data = sent([], b"{}")
    known = KnownHead.of(data, Reading(data).request(), MOST_BYTES)
    assert known is not None
    assert known.again(sent([], b"x" * MOST_BYTES)) is not None
    assert known.again(sent([], b"x" * (MOST_BYTES + 1))) is None
