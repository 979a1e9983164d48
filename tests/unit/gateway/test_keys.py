"""Keys are hard to guess, easy to recognise, and kept as digests under a secret."""

import hashlib
import hmac

import pytest

from gateway.keys import PREFIX, Digests, holds_key, mark_of, new_key, without_keys


def test_a_key_is_long_recognisable_and_new() -> None:
    keys = {new_key() for _ in range(200)}
    assert len(keys) == 200
    assert all(key.startswith(PREFIX) and len(key) == len(PREFIX) + 43 and key[7:].isalnum() for key in keys)


def test_a_digest_depends_on_all_of_the_key_and_on_the_secret() -> None:
    key = new_key().encode()
    digests = {Digests(b"one").of(key), Digests(b"two").of(key), Digests(b"one").of(key[:-1])}
    assert hmac.new(b"one", b"key:" + key, hashlib.sha256).digest() in digests
    assert len(digests) == 3 and all(len(digest) == 32 for digest in digests)


def test_a_mark_tells_secrets_apart() -> None:
    assert mark_of(b"one") == mark_of(b"one") != mark_of(b"two")


@pytest.mark.parametrize("text", [new_key(), "sk-live-0123456789", f"for {new_key()}, thanks", f"({new_key()})"])
def test_what_looks_like_a_key_is_seen_and_left_out(text: str) -> None:
    assert holds_key(text) and not holds_key(without_keys(text)) and "(a key)" in without_keys(text)


@pytest.mark.parametrize("text", ["", "task-force-alpha-one", "sk-", "a risk-free-approach-to-it"])
def test_plain_words_are_no_keys(text: str) -> None:
    assert not holds_key(text) and without_keys(text) == text
