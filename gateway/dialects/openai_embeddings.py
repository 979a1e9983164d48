"""`POST /v1/embeddings` of the OpenAI API: prefill without decode.

Rule: nothing is generated, so nothing is reserved for generation and the call is prefill-heavy by nature.
"""

import msgspec

from gateway.call import Call
from gateway.dialects.openai import OpenAIDialect
from gateway.dialects.openai_body import OpenAIBody, parsed, present
from gateway.dialects.openai_prompts import countable, prompts_of


class EmbeddingBody(OpenAIBody, kw_only=True):
    """An embedding request as far as we read it."""

    input: msgspec.Raw = msgspec.Raw(b"null")
    messages: msgspec.Raw = msgspec.Raw(b"")


_DECODER = msgspec.json.Decoder(EmbeddingBody, strict=False)


class OpenAIEmbeddings(OpenAIDialect):
    """The dialect of embeddings."""

    engine_path = b"/v1/embeddings"

    def parse(self, body: bytes) -> Call:
        embedding, body, mended = parsed(_DECODER, body)
        field = max(bytes(embedding.input), bytes(embedding.messages), key=len)  # an engine reads one of them
        prompts = prompts_of(field)
        longest = max(prompts, key=len)
        text, ids = countable(longest)
        return Call(
            dialect=self,
            body=body,
            mended=mended,
            model=embedding.model,
            content_bytes=len(field),
            prompt_bytes=len(longest),
            prompts=len(prompts),
            overhead=text,
            overhead_tokens=ids,
            generates=False,
            truncates=embedding.truncate_prompt_tokens is not None,
            present=present(body, embedding),
        )
