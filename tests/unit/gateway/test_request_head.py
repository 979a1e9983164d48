"""What a head must be like, and what is read out of it."""

from collections.abc import Mapping

import pytest

from gateway.request_head import path_of, query_of, refusal_of, size_of, written

HOST = {b"host": b"x"}


@pytest.mark.parametrize(
    ("target", "path"),
    [
        (b"/v1/models", "/v1/models"),
        (b"/v1/models?limit=1#x", "/v1/models"),
        (b"http://host:80/v1/models?x", "/v1/models"),
        (b"//v1/models", "//v1/models"),
        (b"/v1/models/org%2Fname", "/v1/models/org%2Fname"),
        (b"host:443", ""),
        (b"/\xff", ""),
        (b"", ""),
    ],
)
def test_the_path_of_a_target(target: bytes, path: str) -> None:
    assert path_of(target) == path


@pytest.mark.parametrize(
    ("target", "query"),
    [(b"/a?b=c", "b=c"), (b"http://host/a?b", "b"), (b"/a", ""), (b"host:443", ""), (b"", "")],
)
def test_the_query_of_a_target(target: bytes, query: str) -> None:
    assert query_of(target) == query


@pytest.mark.parametrize(
    ("version", "headers", "status"),
    [
        ("1.1", HOST, None),
        ("1.0", {}, None),
        ("1.0", HOST, None),
        ("1.1", HOST | {b"transfer-encoding": b"Chunked"}, None),
        ("1.1", HOST | {b"content-length": b"0000000009"}, None),
        ("1.1", HOST | {b"content-length": b"10"}, 413),
        ("1.1", HOST | {b"content-length": b"0" * 21}, 400),
        ("1.1", {}, 400),
        ("1.1", {b"host": b"x, y"}, 400),
        ("1.0", {b"host": b"x, y"}, 400),
        ("1.0", {b"transfer-encoding": b"chunked"}, 400),
        ("1.1", HOST | {b"transfer-encoding": b"xchunked"}, 501),
        ("1.1", HOST | {b"transfer-encoding": b"gzip, chunked"}, 501),
        ("0.9", {}, 505),
        ("2.0", HOST, 505),
    ],
)
def test_what_is_taken_and_what_is_not(version: str, headers: Mapping[bytes, bytes], status: int | None) -> None:
    refusal = refusal_of(version, headers, 9)
    assert (refusal and refusal[0]) == status


@pytest.mark.parametrize("headers", [{}, HOST, HOST | {b"a": b"", b"content-length": b"3"}])
def test_the_size_of_a_head_is_that_of_its_bytes(headers: Mapping[bytes, bytes]) -> None:
    assert size_of(b"POST", b"/x?y", headers) == len(written(b"POST", b"/x?y", headers))


def test_a_head_as_bytes() -> None:
    assert written(b"GET", b"/x", HOST | {b"a": b"b"}) == b"GET /x HTTP/1.1\r\nhost: x\r\na: b\r\n\r\n"
