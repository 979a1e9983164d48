"""Store URLs."""

import ssl

import pytest

from gateway.store_address import Address, Node
from gateway.store_call import StoreError


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://", Address("single", (Node("localhost", 6379),))),
        ("redis://db.internal:7000/2", Address("single", (Node("db.internal", 7000),), db=2)),
        ("redis://[::1]:7000", Address("single", (Node("::1", 7000),))),
        ("redis://u%40x:p%3Aw@h", Address("single", (Node("h", 6379),), username="u@x", password="p:w")),
        ("unix:///run/v.sock?db=1", Address("single", (Node("localhost", 6379, "/run/v.sock"),), db=1)),
        (
            "redis+sentinel://:pw@a,b:27000/main/3",
            Address(
                "sentinel",
                (Node("a", 26379), Node("b", 27000)),
                "main",
                db=3,
                password="pw",
                sentinel_options=(("socket_timeout", 1.0), ("username", None), ("password", None)),
            ),
        ),
        ("redis+cluster://a,[::1]:7001", Address("cluster", (Node("a", 6379), Node("::1", 7001)))),
    ],
)
def test_every_form_is_read(url: str, expected: Address) -> None:
    assert Address.parse(url) == expected


def test_sentinels_may_have_their_own_login() -> None:
    address = Address.parse("redis+sentinel://:pw@a/main?sentinel_password=other&sentinel_username=watch")
    assert dict(address.sentinel_options) == {"socket_timeout": 1.0, "username": "watch", "password": "other"}


@pytest.mark.parametrize("url", ["rediss://h", "rediss+cluster://h1,h2", "rediss+sentinel://h/main"])
def test_tls_checks_the_certificate_and_the_name(url: str) -> None:
    tls = Address.parse(url).tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_REQUIRED
    assert tls.check_hostname


def test_tls_options_are_those_of_redis_py() -> None:
    tls = Address.parse("rediss://h?ssl_cert_reqs=none&ssl_check_hostname=false").tls
    assert tls is not None
    assert tls.verify_mode is ssl.CERT_NONE


def test_a_password_shows_nowhere() -> None:
    assert "pw" not in repr(Address.parse("redis+sentinel://:pw@a/main?sentinel_password=pw"))
    assert "pw" not in str(Address.parse("redis://:pw@h").nodes[0])


@pytest.mark.parametrize(
    "url",
    ["", "h", "http://h", "redis+other://h", "unix+cluster:///x", "redis+cluster://", "redis+sentinel://h", "redis://h:port",
     "redis://h?ssl_cert_reqs=none&db=x", "rediss://h?ssl_ca_certs=/nowhere.pem"],
)  # fmt: skip
def test_what_is_not_understood_is_an_error_that_repeats_nothing(url: str) -> None:
    with pytest.raises(StoreError, match="not understood") as caught:
        Address.parse(url)
    assert "\n" not in str(caught.value)
