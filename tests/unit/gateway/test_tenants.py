"""A key is looked up by its whole digest; an answer repeats nothing of it."""

import hashlib
import re

import pytest

from gateway.credential import MAX_KEY_BYTES
from gateway.errors import NotAuthenticated
from gateway.tenants import Tenants, cache_salt
from tests.unit.gateway.samples import BEARER, KEY, SECRET, config

RAW = KEY.encode()


@pytest.fixture
def tenants() -> Tenants:
    return Tenants(config(), SECRET)


@pytest.mark.parametrize(
    "headers",
    [
        {b"authorization": b"Bearer " + RAW},
        {b"authorization": b"bearer   " + RAW + b" "},
        {b"x-api-key": RAW},
        {b"api-key": b" " + RAW},
    ],
)
def test_any_of_the_three_headers_carries_the_key(tenants: Tenants, headers: dict[bytes, bytes]) -> None:
    caller = tenants.identify(headers)
    assert (caller.tenant, caller.key, caller.may.tier) == ("acme", "laptop", "standard")


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {b"cookie": RAW},
        {b"authorization": b"Bearer"},
        {b"authorization": RAW},
        {b"authorization": b"Basic " + RAW},
        {b"authorization": b"Bearer " + RAW[:-1]},
        {b"authorization": b"Bearer " + RAW.upper()},
        {b"authorization": b"Bearer " + RAW + b", Bearer " + RAW},
        {b"authorization": b"Bearer " + RAW, b"x-api-key": RAW},
        {b"x-api-key": b""},
        {b"x-api-key": b"secret-" * 200},
        {b"x-api-key": hashlib.sha256(RAW).hexdigest().encode()},
    ],
)
def test_what_is_not_one_known_key_is_refused_and_never_repeated(tenants: Tenants, headers: dict[bytes, bytes]) -> None:
    with pytest.raises(NotAuthenticated) as refused:
        tenants.identify(headers)
    told = refused.value.message
    assert not any(value and value.decode() in told for value in headers.values())
    assert KEY[3:] not in told


def test_a_key_longer_than_any_is_not_even_hashed(tenants: Tenants) -> None:
    key = b"k" * (MAX_KEY_BYTES + 1)
    long = config(("tenants/acme/keys/0/sha256", hashlib.sha256(key).hexdigest()))
    with pytest.raises(NotAuthenticated):
        Tenants(long, SECRET).identify({b"x-api-key": key})


def test_missing_unknown_and_doubled_keys_are_told_apart(tenants: Tenants) -> None:
    told = set()
    for headers in ({}, {b"x-api-key": b"other"}, dict(BEARER) | {b"api-key": RAW}):
        with pytest.raises(NotAuthenticated) as refused:
            tenants.identify(headers)
        told.add(refused.value.message)
    assert len(told) == 3


def test_a_cache_salt_is_what_vllm_accepts_and_a_tenants_own() -> None:
    # vLLM 0.33 takes 1 to 128 characters without `@`, `/`, `\\` and NUL (validate_cache_salt).
    salts = {cache_salt(SECRET, "acme"), cache_salt(SECRET, "other"), cache_salt(b"x" * 32, "acme")}
    assert len(salts) == 3
    assert all(re.fullmatch("[0-9a-f]{64}", salt) for salt in salts)
    assert cache_salt(SECRET, "acme") == cache_salt(SECRET, "acme")


def test_the_callers_salt_is_raw_json(tenants: Tenants) -> None:
    assert tenants.identify(BEARER).cache_salt == f'"{cache_salt(SECRET, "acme")}"'.encode()
