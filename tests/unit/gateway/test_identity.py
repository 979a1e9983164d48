"""Which session a request claims."""

from typing import get_args

import pytest

from config.tiers import IdentitySource
from gateway.identity import SessionHints, SessionKey, identify

NO_HINTS = SessionHints()
ALL_HEADERS = {
    b"x-session-id": b"s-1",
    b"x-claude-code-session-id": b"s-2",
    b"session-id": b"s-3",
    b"session_id": b"s-4",
    b"thread-id": b"s-5",
    b"conversation_id": b"s-6",
    b"x-session-affinity": b"s-7",
}
ALL_HINTS = {
    "session_id": "s-8",
    "conversation": "s-9",
    "previous_response_id": "s-10",
    "metadata_session_id": "s-11",
    "metadata_user_id": "user_abc_account__session_00000000-1111",
}


def key(headers: dict[bytes, bytes], hints: SessionHints = NO_HINTS, **changes: object) -> SessionKey:
    given = {"tenant": "acme", "model": "m", "opener": b"o" * 16} | changes
    return identify(headers, hints, **given)  # type: ignore[arg-type]


def test_the_order_of_sources_is_fixed() -> None:
    headers, hints, seen = dict(ALL_HEADERS), dict(ALL_HINTS), []
    while headers:
        seen.append(key(headers, SessionHints(**hints)).id)
        del headers[next(iter(headers))]
    while hints:
        seen.append(key(headers, SessionHints(**hints)).id)
        del hints[next(iter(hints))]
    assert seen == [f"s-{n}" for n in range(1, 12)] + ["00000000-1111"]


@pytest.mark.parametrize(
    ("sources", "first", "without_hints"),
    [
        ((), "derived", "derived"),
        (("metadata.user_id", "codex", "x-session-id"), "body.metadata.user_id", "session-id"),
        (("prompt_cache_key", "vendor"), "body.prompt_cache_key", "x-claude-code-session-id"),
        (("prompt_cache_key",), "body.prompt_cache_key", "derived"),
    ],
)
def test_a_tier_may_say_which_sources_count_and_in_what_order(
    sources: tuple[IdentitySource, ...], first: str, without_hints: str
) -> None:
    hints = SessionHints(**ALL_HINTS, prompt_cache_key="s-12")
    assert identify(ALL_HEADERS, hints, "acme", "m", b"o", sources).source == first
    assert identify(ALL_HEADERS, NO_HINTS, "acme", "m", b"o", sources).source == without_hints


def test_every_source_that_can_be_listed_is_read() -> None:
    hints = SessionHints(**ALL_HINTS, prompt_cache_key="s-12")
    for source in get_args(IdentitySource):
        assert identify(ALL_HEADERS, hints, "acme", "m", b"o", (source,)).source != "derived", source


@pytest.mark.parametrize("name", [b"x-litellm-session-id", b"x-claude-code-session-id", b"x-headroom-session-id"])
def test_any_vendor_may_name_its_session(name: bytes) -> None:
    assert key({name: b"abc-123"}) == SessionKey("abc-123", name.decode())


def test_a_sub_agent_is_another_session_than_its_parent() -> None:
    parent = {b"x-claude-code-session-id": b"abc"}
    child = parent | {b"x-claude-code-agent-id": b"agent-7"}
    assert key(child).id == "abc|agent-7"
    assert key(child) != key(parent)
    assert key({b"x-parent-session-id": b"abc"}).source == "derived"


@pytest.mark.parametrize(
    "value", [b"", b" ", b"a" * 257, b"a b", b"a{b}c", b"a\x00b", b"a\r\nb", "ä".encode(), b"one, two", b"a|b"]
)
def test_a_malformed_id_is_ignored_and_the_next_source_counts(value: bytes) -> None:
    assert key({b"x-session-id": value, b"session-id": b"good"}) == SessionKey("good", "session-id")
    assert key({b"x-session-id": value}).source == "derived"


def test_a_long_id_is_kept_as_a_digest() -> None:
    long, other = key({b"x-session-id": b"a" * 256}), key({b"x-session-id": b"a" * 255})
    assert len(long.id) <= 64
    assert long != other
    assert key({b"x-session-id": b"a" * 64}).id == "a" * 64


@pytest.mark.parametrize(
    ("user_id", "expected"),
    [
        ("user_0a1b_account_c2_session_12345678-9abc", "12345678-9abc"),
        ('{"device_id": "d", "session_id": "json-session"}', "json-session"),
    ],
)
def test_a_user_id_may_carry_a_session(user_id: str, expected: str) -> None:
    assert key({}, SessionHints(metadata_user_id=user_id)) == SessionKey(expected, "body.metadata.user_id")


@pytest.mark.parametrize("user_id", ["jane@example.com", '{"session_id": 7}', "{broken", "[]", "{" * 100_000])
def test_a_person_is_no_session(user_id: str) -> None:
    assert key({}, SessionHints(metadata_user_id=user_id)).source == "derived"


def test_a_cache_key_is_no_session() -> None:
    assert key({}, SessionHints(prompt_cache_key="shared-by-all-chats")) == key({})


def test_a_derived_session_depends_on_tenant_model_and_opener() -> None:
    ids = {
        key({}).id,
        key({}, tenant="other").id,
        key({}, model="other").id,
        key({}, opener=b"p" * 16).id,
        key({}, tenant="acmem", model="").id,
    }
    assert len(ids) == 5
    assert key({}) == key({})
