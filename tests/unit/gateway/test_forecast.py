"""What is reserved and expected before anything is counted, learned from calls that engines reported on."""

import json

import pytest

from budgets.usage import Usage
from gateway.call import Call
from gateway.clock import monotonic
from gateway.counting import Counter
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.forecast import Expected, Forecast, demands
from gateway.pools import ServedPool
from gateway.service import Service
from tests.unit.gateway.samples import call as chat
from tests.unit.gateway.samples import caller, config

POOLS = {
    "main": {"models": ["demo"], "hardware": "h100-sxm", "replicas": ["http://127.0.0.1:9001"]},
    "other": {"models": ["demo"], "hardware": "h100-sxm", "replicas": ["http://127.0.0.1:9002"]},
}


def service() -> Service:
    loaded = config(("pools", POOLS))
    pools = [ServedPool(pool, loaded.routing, monotonic, {}) for pool in loaded.pools.values()]
    return Service(caller(), loaded.models["demo"], pools, Counter(len))


def said(text: str, **fields: object) -> Call:
    return chat(json.dumps({"model": "demo", "messages": [{"role": "user", "content": text}]} | fields).encode())


def test_an_estimate_is_bounded_by_the_tier_and_never_nothing() -> None:
    at = service()
    limits = at.caller.may
    huge = Forecast().usage(said("x" * 10**6), at)
    tiny = Forecast().usage(said("x"), at)
    assert limits.context.limit_tokens == huge.prompt_tokens
    assert tiny.prompt_tokens >= 1
    assert huge.source == "estimated"


def test_replies_are_expected_within_what_the_call_may_have() -> None:
    assert Forecast().usage(said("x", max_tokens=7), service()).decode_tokens == 7
    assert Forecast().usage(said("x", max_tokens=7, n=3), service()).decode_tokens == 21
    embedding = OpenAIEmbeddings().parse(b'{"model":"demo","input":"x"}')
    assert Forecast().usage(embedding, service()).decode_tokens == 0


def test_replies_are_learned_per_choice() -> None:
    forecast, at = Forecast(), service()
    call = said("x", n=4)
    for _ in range(50):
        forecast.learn(call, at, Usage.reported(10, None, 400), None)
    assert 100 <= forecast.usage(said("x"), at).decode_tokens <= 120


def test_bytes_are_learned_from_calls_that_were_not_counted() -> None:
    forecast, at = Forecast(), service()
    call = said("x" * 10_000)
    for _ in range(200):
        forecast.learn(call, at, Usage.reported(call.content_bytes // 5, None, 1), None)
    assert forecast.usage(call, at).prompt_tokens == pytest.approx(call.content_bytes / 5, rel=0.02)
    assert forecast.ratio("demo") == 1.0


def test_what_no_engine_reported_teaches_nothing() -> None:
    forecast, at = Forecast(), service()
    before = forecast.usage(said("x"), at)
    forecast.learn(said("x"), at, Usage.estimated(10**6, 10**6), 10)
    assert (forecast.usage(said("x"), at), forecast.ratio("demo")) == (before, 1.0)


def test_known_messages_count_by_their_bytes() -> None:
    forecast, at = Forecast(), service()
    call = said("x" * 3_000)
    assert forecast.known_tokens(call, at, 0) == 0
    assert forecast.known_tokens(call, at, 1) == pytest.approx(len(call.messages[0]) / 3, abs=1)


def test_a_warm_prefix_counts_only_in_the_pool_of_its_home() -> None:
    at = service()
    away, home = demands(at, Expected(8_000, 6_000, 100), "s", "127.0.0.1:9002")
    assert (away.prefill_tokens, home.prefill_tokens) == (8_000, 2_000)
    assert (away.home, home.home) == (None, "127.0.0.1:9002")
    assert home.prefill_seconds < away.prefill_seconds
    assert home.decode_seconds == away.decode_seconds


def test_warmth_is_what_engines_found_of_what_was_sent_before() -> None:
    forecast = Forecast()
    assert forecast.warm("demo") == 1.0
    forecast.learn_warmth("demo", 1_000, None)
    forecast.learn_warmth("demo", 0, 0)
    assert forecast.warm("demo") == 1.0
    for _ in range(200):
        forecast.learn_warmth("demo", 1_000, 400)
    assert forecast.warm("demo") == pytest.approx(0.4, abs=0.01)
    forecast.learn_warmth("demo", 1_000, 5_000)
    assert forecast.warm("demo") <= 1.0
    assert forecast.warm("another") == 1.0
