"""`POST /v1/completions` of the OpenAI API: a prompt as text, as token ids, or several of either.

Rule: a prompt is not a conversation, so no policy edits it; it is counted, limited and charged.
"""

import msgspec

from gateway.call import Call
from gateway.dialects.openai import OpenAIDialect
from gateway.dialects.openai_body import (
    MAX_CHOICES,
    OpenAIBody,
    choices_of,
    hints_of,
    limit_of,
    parsed,
    present,
    wants_usage,
)
from gateway.dialects.openai_prompts import countable, prompts_of
from gateway.errors import InvalidRequest


class CompletionBody(OpenAIBody, kw_only=True):
    """A completion request as far as we read it."""

    prompt: msgspec.Raw = msgspec.Raw(b"null")
    best_of: int | None = None
    echo: bool | None = None


_DECODER = msgspec.json.Decoder(CompletionBody, strict=False)


class OpenAICompletions(OpenAIDialect):
    """The dialect of text completions."""

    engine_path = b"/v1/completions"

    def parse(self, body: bytes) -> Call:
        completion, body, mended = parsed(_DECODER, body)
        prompt = bytes(completion.prompt)
        prompts = prompts_of(prompt)
        longest = max(prompts, key=len)
        text, ids = countable(longest)
        choices = choices_of(completion)
        return Call(
            dialect=self,
            body=body,
            mended=mended,
            model=completion.model,
            stream=bool(completion.stream),
            wants_usage=wants_usage(completion),
            content_bytes=len(prompt),
            prompt_bytes=len(longest),
            prompts=len(prompts),
            overhead=text,
            overhead_tokens=ids,
            max_tokens=_most(completion),
            choices=choices * len(prompts),
            sequences=max(choices, _best_of(completion)) * len(prompts),
            truncates=completion.truncate_prompt_tokens is not None,
            present=present(body, completion),
            hints=hints_of(completion),
        )


def _most(completion: CompletionBody) -> int | None:
    """The limit on generated tokens. A prompt that comes back needs no reply; engines make one token and drop it."""
    most = limit_of(completion, least=0 if completion.echo else 1)
    return 1 if most == 0 else most


def _best_of(completion: CompletionBody) -> int:
    count = 1 if completion.best_of is None else completion.best_of
    if not 1 <= count <= MAX_CHOICES:
        raise InvalidRequest(f"`best_of` must be between 1 and {MAX_CHOICES}, got {count}.", param="best_of")
    return count
