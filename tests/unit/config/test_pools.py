"""Replicas, their names, and what engines are taken to understand."""

import pytest

from config.pools import Features, Replica
from tests.unit.config.samples import config, problems


@pytest.mark.parametrize(
    ("written", "url", "name"),
    [
        ("http://127.0.0.1:9001", "http://127.0.0.1:9001", "127.0.0.1:9001"),
        ("http://GPU-1:8000/", "http://gpu-1:8000", "gpu-1:8000"),
        ("https://engine.example", "https://engine.example", "engine.example"),
        ("http://[::1]:8000", "http://[::1]:8000", "[::1]:8000"),
        ({"url": "http://a:1", "name": "first"}, "http://a:1", "first"),
    ],
)
def test_a_replica(written: object, url: str, name: str) -> None:
    replica = Replica.model_validate(written)
    assert (replica.url, replica.name) == (url, name)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("127.0.0.1:9001", "expected http://host:port or https://host:port, not '127.0.0.1:9001'"),
        ("ftp://host", "expected http://host:port or https://host:port, not 'ftp://host'"),
        ("http://", "expected http://host:port or https://host:port, not 'http://'"),
        ("http://host:1/v1", "expected no path; write http://host:1, not 'http://host:1/v1'"),
        ("http://host:1?x=1", "expected no path; write http://host:1, not 'http://host:1?x=1'"),
        ("http://host:0", "port 0 is not a port, not 'http://host:0'"),
        ("http://user@host:1", "a URL carries no credentials; use the pool's engine_key: env:NAME"),
    ],
)
def test_a_url_that_is_no_origin(url: str, expected: str) -> None:
    assert problems(("pools/main/replicas/0", {"url": url, "name": "a"})) == {"pools.main.replicas[0].url": expected}


@pytest.mark.parametrize(
    "url",
    [
        *("http://host:99999", "http://host:port", "http://[::1", "http://a..b", "http://a b", "http://.a"),
        *("http://\u00e4.de", "http://%41", f"http://{'a' * 64}.com"),
    ],
)
def test_a_url_that_cannot_be_read(url: str) -> None:
    assert problems(("pools/main/replicas/0", {"url": url, "name": "a"})).keys() == {"pools.main.replicas[0].url"}
    assert len(problems(("pools/main/replicas/0", url))) == 1


def test_features_are_the_usual_ones_of_the_kind_unless_declared() -> None:
    assert config().pools["main"].features == Features(
        priority=False,
        prompt_tokens_details=False,
        cache_salt=True,
        usage_in_stream=True,
        broken_arguments=False,
        cache_control=True,
    )
    declared = config(("pools/main/engine", "tgi"), ("pools/main/features", {"prompt_tokens_details": True}))
    assert declared.pools["main"].features == Features(
        priority=False,
        prompt_tokens_details=True,
        cache_salt=False,
        usage_in_stream=True,
        broken_arguments=True,
        cache_control=True,
    )


@pytest.mark.parametrize(("kind", "salted"), [("vllm", True), ("sglang", True), ("tgi", False), ("openai", False)])
def test_a_cache_salt_is_sent_where_the_kind_understands_it(kind: str, salted: bool) -> None:
    features = config(("pools/main/engine", kind)).pools["main"].features
    assert (features.cache_salt, features.priority, features.prompt_tokens_details) == (salted, False, False)


def test_what_a_pool_is_unless_told_otherwise() -> None:
    pool = config().pools["main"]
    assert (pool.engine, pool.phase, pool.tensor_parallel, pool.max_concurrent) == ("vllm", "any", 1, 64)
    assert pool.hardware.count == 1 and pool.engine_key is None


def test_an_engine_key_is_read_from_the_environment() -> None:
    key = config(("pools/main/engine_key", "env:ENGINE_KEY")).pools["main"].engine_key
    assert key is not None
    assert key.read({"ENGINE_KEY": "secret"}) == "secret"
    assert key.read({}) is key.read({"ENGINE_KEY": ""}) is None


@pytest.mark.parametrize("value", ["sk-1", "env:", "env:1A", "env:A B", 7, None, {"variable": "A"}])
def test_a_literal_secret_says_what_to_write(value: object) -> None:
    found = problems(("pools/main/engine_key", value))
    if value is None:
        assert found == {}
    else:
        assert "write env:NAME" in found["pools.main.engine_key"]
