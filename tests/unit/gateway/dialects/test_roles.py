"""Messages that are a role and a text: told apart without decoding, and only where decoding would say the same."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.openai_body import LONG_BYTES, outside
from gateway.dialects.roles import quoteless_role, role_of

ROLES = ("user", "assistant", "system", "tool", "developer")


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_a_role_and_a_text(role: str, separators: tuple[str, str]) -> None:
    message = json.dumps({"role": role, "content": "a } of \\ \n words"}, separators=separators).encode()
    assert quoteless_role(message) == role


@pytest.mark.parametrize(
    "message",
    [
        b'{"role":"user","content":"a","role":"tool"}',
        b'{"role":"user","content":"a \\" b"}',
        b'{"role":"user","content":"a","name":"b"}',
        b'{"role":"user","content":["a"]}',
        b'{"role":"function","content":"a"}',
        b'{"role":"user","content":"a" }',
        b'{"role":"user"}',
        b"",
    ],
)
def test_any_other_message_is_left_to_a_decoder(message: bytes) -> None:
    assert quoteless_role(message) is None
    assert role_of(message) == json.loads(message or b"{}").get("role", "")


@given(
    st.dictionaries(
        st.sampled_from(("role", "content", "name")),
        st.one_of(st.sampled_from(ROLES), st.text(), st.none()),
        min_size=1,
    )
)
def test_it_never_says_what_decoding_would_not(fields: dict[str, str | None]) -> None:
    role = quoteless_role(json.dumps(fields, ensure_ascii=False).encode("utf-8", "replace"))
    assert role is None or role == fields["role"]


@pytest.mark.parametrize("comma", [",", ", "])
def test_names_are_looked_for_outside_the_messages(comma: str) -> None:
    messages = [b'{"role":"user","content":"%b"}' % (letter * LONG_BYTES) for letter in (b"a", b"b")]
    joined = comma.encode().join(messages)
    assert outside(b'{"model":"m","messages":[%b],"n":1}' % joined, messages) == b'{"model":"m","messages":[],"n":1}'
    other = b'{"model":"m","messages":[%b],"n":1}' % b" , ".join(messages)
    assert outside(other, messages) is other
