"""Embeddings: prefill without decode."""

import json

import pytest

from gateway.dialects.openai_embeddings import OpenAIEmbeddings
from gateway.errors import InvalidRequest


def test_an_embedding_generates_nothing() -> None:
    body = b'{"model":"m","input":["a","bc"],"priority":3}'
    call = OpenAIEmbeddings().parse(body)
    assert (call.model, call.stream, call.generates, call.messages) == ("m", False, False, ())
    assert call.content_bytes == len(b'["a","bc"]')
    assert call.present == {"model": b"", "priority": b"3"}
    assert OpenAIEmbeddings().render(call, ()) is body


def test_a_model_is_needed() -> None:
    with pytest.raises(InvalidRequest) as refused:
        OpenAIEmbeddings().parse(b'{"input":"a"}')
    assert "model" in refused.value.message


@pytest.mark.parametrize("name", ["messages", "input"])
def test_a_conversation_to_embed_counts_as_what_it_is(name: str) -> None:
    """vLLM takes one in either field; a field that is not read is a way around every limit."""
    said = [{"role": "user", "content": "word " * 500}]
    call = OpenAIEmbeddings().parse(json.dumps({"model": "m", name: said}).encode())
    assert call.content_bytes == call.prompt_bytes > 2_500
    assert (call.prompts, call.overhead) == (1, json.dumps(said).encode())


def test_of_two_fields_the_longer_counts() -> None:
    body = {"model": "m", "messages": None, "input": "word " * 500}
    assert OpenAIEmbeddings().parse(json.dumps(body).encode()).content_bytes > 2_500


def test_conversations_to_embed_are_several_prompts() -> None:
    said = [[{"role": "user", "content": "word " * 500}], [{"role": "user", "content": "Hi"}]]
    call = OpenAIEmbeddings().parse(json.dumps({"model": "m", "messages": said}).encode())
    assert call.prompts == 2
    assert call.content_bytes > call.prompt_bytes > 2_500
