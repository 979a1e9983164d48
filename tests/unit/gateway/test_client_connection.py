"""The path of a request target; the rest of the connection is tested over sockets."""

import pytest

from gateway.client_connection import path_of


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
