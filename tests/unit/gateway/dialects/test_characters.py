"""Halves of surrogate pairs never leave us, and nothing else of a body changes."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.characters import has_encoded, sound
from gateway.dialects.openai_chat import OpenAIChat
from gateway.dialects.openai_completions import OpenAICompletions
from gateway.dialects.openai_embeddings import OpenAIEmbeddings

WHOLE = "\U0001f600"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (rb'"\ud83d"', rb'"\ufffd"'),
        (rb'"\uDE00 x"', rb'"\ufffd x"'),
        (rb'"\ud83d\ud83d\ude00"', rb'"\ufffd\ud83d\ude00"'),
        (rb'"\ud83d\n\ude00"', rb'"\ufffd\n\ufffd"'),
        (b'"\xed\xa0\xbd."', '"\ufffd."'.encode()),
        (b'"\xed\xa0\xbd\xed\xb8\x80"', f'"{WHOLE}"'.encode()),
    ],
)
def test_halves_become_the_replacement_character(body: bytes, expected: bytes) -> None:
    mended, places = sound(body)
    assert mended == expected and places >= 1
    assert json.loads(mended) == json.loads(body).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


@pytest.mark.parametrize(
    "body", [rb'"\ud83d\ude00"', rb'"\\ud83d"', rb'"\\\\ud83d \t"', '"\ud55c\uae00"'.encode(), b"{"]
)
def test_what_is_whole_is_the_very_same_object(body: bytes) -> None:
    assert sound(body)[0] is body
    assert not has_encoded(body)


@given(st.text(st.characters(codec=None, categories=("L", "Cs", "So", "Po", "Zs")), max_size=40), st.booleans())
def test_every_text_can_be_written_down_afterwards(text: str, escaped: bool) -> None:
    body = json.dumps(text, ensure_ascii=escaped).encode("utf-8", "surrogatepass")
    json.loads(sound(body)[0].decode()).encode()


@pytest.mark.parametrize("dialect", [OpenAIChat(), OpenAICompletions(), OpenAIEmbeddings()])
@pytest.mark.parametrize("half", [rb"\ud83d", b"\xed\xa0\xbd"])
def test_a_body_with_a_half_is_read(dialect: OpenAIChat | OpenAICompletions | OpenAIEmbeddings, half: bytes) -> None:
    text = b'"cut %b"' % half
    body = b'{"model":"m","messages":[{"role":"user","content":%b}],"prompt":%b,"input":%b}' % (text, text, text)
    call = dialect.parse(body)
    assert call.mended >= 1
    assert json.loads(call.body.decode())["prompt"] == "cut \ufffd"
