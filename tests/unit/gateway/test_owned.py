"""What the gateway sets, changes and removes at the top level of a request: the closed table, row by row."""

import json

import pytest

from config.pools import Features
from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.owned import owned_fields
from tests.unit.gateway.samples import call, caller

PLAIN = Features(priority=False, prompt_tokens_details=False, cache_salt=False, usage_in_stream=False)
ALL = Features(priority=True, prompt_tokens_details=True, cache_salt=True, usage_in_stream=True)
OPEN: tuple[str, dict[str, int]] = ("tiers/standard/max_tokens", {})


def body(**fields: object) -> bytes:
    return json.dumps({"model": "demo", "messages": [{"role": "user", "content": "Hi"}]} | fields).encode()


def test_a_request_that_breaks_no_rule_is_left_alone() -> None:
    assert owned_fields(call(body(max_tokens=8)), caller(), "demo", PLAIN) == {}


def test_an_alias_becomes_the_engines_name() -> None:
    fields = owned_fields(call(body(model="gpt-4o-mini", max_tokens=8)), caller(), "org/demo", PLAIN)
    assert fields == {"model": b'"org/demo"'}


def test_the_tenants_salt_replaces_the_clients() -> None:
    who = caller()
    fields = owned_fields(call(body(max_tokens=8, cache_salt="theirs")), who, "demo", ALL)
    assert fields["cache_salt"] == who.cache_salt
    assert owned_fields(call(body(max_tokens=8, cache_salt="theirs")), who, "demo", PLAIN) == {"cache_salt": None}


def test_priority_is_the_tiers_and_is_sent_only_where_it_is_understood() -> None:
    urgent = caller(("tiers/standard/priority", -5))
    theirs = call(body(max_tokens=8, priority=-1000))
    assert owned_fields(theirs, urgent, "demo", ALL)["priority"] == b"-5"
    assert owned_fields(theirs, urgent, "demo", PLAIN) == {"priority": None}
    assert owned_fields(theirs, caller(), "demo", ALL)["priority"] is None


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({"stream": True}, {"include_usage": True}),
        ({"stream": True, "stream_options": None}, {"include_usage": True}),
        ({"stream": True, "stream_options": {"include_usage": False}}, {"include_usage": True}),
        ({"stream": True, "stream_options": {"x": 1}}, {"x": 1, "include_usage": True}),
        ({"stream": True, "stream_options": {"continuous_usage_stats": True}}, {"include_usage": True}),
        ({"stream": True, "stream_options": {"include_usage": True}}, None),
        ({"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}}, None),
        ({"stream": False}, None),
    ],
)
def test_usage_is_asked_of_every_stream(sent: dict[str, object], expected: object) -> None:
    fields = owned_fields(call(body(max_tokens=8, **sent)), caller(), "demo", ALL)
    options = fields.get("stream_options")
    assert (None if options is None else json.loads(options)) == expected


def test_usage_is_not_asked_of_an_engine_that_cannot_tell() -> None:
    assert owned_fields(call(body(max_tokens=8, stream=True)), caller(), "demo", PLAIN) == {}


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ({}, {"max_tokens": b"1024"}),
        ({"max_tokens": None}, {"max_tokens": b"1024"}),
        ({"max_completion_tokens": None}, {"max_completion_tokens": b"1024"}),
        ({"max_tokens": 4096}, {}),
        ({"max_tokens": 4097}, {"max_tokens": b"4096"}),
        ({"max_completion_tokens": 9999}, {"max_completion_tokens": b"4096"}),
        ({"max_tokens": "9999"}, {"max_tokens": b"4096"}),
        # Engines differ in which of the two they read, so neither may be above the limit.
        ({"max_tokens": 9999, "max_completion_tokens": 10}, {"max_tokens": b"4096"}),
        ({"max_tokens": 10, "max_completion_tokens": 9999}, {"max_completion_tokens": b"4096"}),
        ({"max_tokens": 9999, "max_completion_tokens": None}, {"max_tokens": b"4096"}),
        ({"max_tokens": 20, "max_completion_tokens": 10}, {}),
    ],
)
def test_replies_are_bounded_by_the_tier(sent: dict[str, object], expected: dict[str, bytes]) -> None:
    assert owned_fields(call(body(**sent)), caller(), "demo", PLAIN) == expected


def test_a_tier_without_bounds_sets_none() -> None:
    assert owned_fields(call(body()), caller(OPEN), "demo", PLAIN) == {}
    assert owned_fields(call(body(max_tokens=10**6)), caller(OPEN), "demo", PLAIN) == {}


def test_a_limit_without_a_default_is_the_default() -> None:
    limited = caller(("tiers/standard/max_tokens", {"limit": 50}))
    assert owned_fields(call(body()), limited, "demo", PLAIN) == {"max_tokens": b"50"}


def test_embeddings_generate_nothing_and_get_no_limit() -> None:
    embedding = OpenAIEmbeddings().parse(b'{"model":"demo","input":"x"}')
    assert owned_fields(embedding, caller(), "demo", PLAIN) == {}


@pytest.mark.parametrize(
    ("sent", "clamped", "expected"),
    [
        ({"max_tokens": 500}, 300, {"max_tokens": b"300"}),
        ({"max_tokens": 200}, 300, {}),
        ({"max_tokens": 900, "max_completion_tokens": 20}, 300, {"max_tokens": b"300"}),
        ({}, 300, {"max_tokens": b"300"}),
        ({"max_completion_tokens": None}, 300, {"max_completion_tokens": b"300"}),
    ],
)
def test_a_reply_that_a_policy_clamped_is_asked_for_no_longer(
    sent: dict[str, object], clamped: int, expected: dict[str, bytes]
) -> None:
    assert owned_fields(call(body(**sent)), caller(OPEN), "demo", PLAIN, clamped) == expected
