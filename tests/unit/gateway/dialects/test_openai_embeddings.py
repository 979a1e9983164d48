"""Embeddings: prefill without decode."""

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
