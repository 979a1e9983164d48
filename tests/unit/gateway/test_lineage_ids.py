"""Whose session a call is, and where its conversation begins."""

import json

import pytest

from gateway import digests
from gateway.call import Call
from gateway.dialects.roles import role_of
from gateway.lineage import first_user, session_id
from tests.unit.gateway.samples import call as chat


def said(*turns: tuple[str, str], **fields: object) -> Call:
    messages = [{"role": role, "content": text} for role, text in turns]
    return chat(json.dumps({"model": "demo", "messages": messages} | fields).encode())


def session_of(call: Call, headers: dict[bytes, bytes] | None = None) -> str:
    return session_id(call, headers or {}, ("acme", "demo"), digests.of_messages(call.messages))


@pytest.mark.parametrize(
    ("message", "role"),
    [
        (b'{"role":"user"}', "user"),
        (b'{"content":"x","role":"tool"}', "tool"),
        (b"{}", ""),
        (b'{"role":null}', ""),
        (b'{"role":["user"]}', ""),
        (b"[]", ""),
        (b"1", ""),
        (b"{", ""),
        (b'{"role":"\xff"}', ""),
    ],
)
def test_roles(message: bytes, role: str) -> None:
    assert role_of(message) == role


def test_a_conversation_begins_with_its_first_user_message() -> None:
    assert first_user(said(("system", "a"), ("user", "b"), ("user", "c"))) == 1
    assert first_user(said(("system", "a"))) == 1


def test_chats_that_open_alike_are_one_session_as_they_grow() -> None:
    opened = said(("system", "Be brief."), ("user", "Hi"))
    grown = said(("system", "Be brief."), ("user", "Hi"), ("assistant", "Hello"), ("user", "More"))
    assert session_of(opened) == session_of(grown)


def test_chats_that_open_differently_are_two() -> None:
    first, second = said(("system", "Be brief."), ("user", "Hi")), said(("system", "Be brief."), ("user", "Ho"))
    assert session_of(first) != session_of(second)
    assert session_of(first) != session_of(said(("system", "Be long."), ("user", "Hi")))


def test_a_claimed_session_goes_before_a_derived_one() -> None:
    call = said(("user", "Hi"), session_id="s-2")
    assert session_of(call) == "s-2"
    assert session_of(call, {b"x-session-id": b"s-1"}) == "s-1"
