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
from gateway.errors import InvalidRequest


class CompletionBody(OpenAIBody, kw_only=True):
    """A completion request as far as we read it."""

    prompt: msgspec.Raw = msgspec.Raw(b"null")
    best_of: int | None = None


_DECODER = msgspec.json.Decoder(CompletionBody, strict=False)


class OpenAICompletions(OpenAIDialect):
    """The dialect of text completions."""

    engine_path = b"/v1/completions"

    def parse(self, body: bytes) -> Call:
        completion = parsed(_DECODER, body)
        prompt = bytes(completion.prompt)
        text, ids = countable(prompt)
        return Call(
            dialect=self,
            body=body,
            model=completion.model,
            stream=bool(completion.stream),
            wants_usage=wants_usage(completion),
            content_bytes=len(prompt),
            overhead=text,
            overhead_tokens=ids,
            max_tokens=limit_of(completion),
            choices=max(choices_of(completion), _best_of(completion)) * prompts_in(prompt),
            present=present(body, completion),
            hints=hints_of(completion),
        )


def prompts_in(prompt: bytes) -> int:
    """How many prompts a raw `prompt` field holds: a text or a list of ids is one, a list of those its length."""
    try:
        items = msgspec.json.decode(prompt, type=list[msgspec.Raw])
    except msgspec.ValidationError:
        return 1
    return len(items) if items and bytes(items[0])[:1] in (b'"', b"[") else 1


def countable(prompt: bytes) -> tuple[bytes, int]:
    """The text of a raw `prompt` field as an engine reads it, and how many tokens came as ids."""
    try:
        value = msgspec.json.decode(prompt)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return prompt, 0
    items = value if isinstance(value, list) else [value]
    ids = sum(len(item) if isinstance(item, list) else isinstance(item, int) for item in items)
    return "\n".join(item for item in items if isinstance(item, str)).encode(), ids


def _best_of(completion: CompletionBody) -> int:
    count = 1 if completion.best_of is None else completion.best_of
    if not 1 <= count <= MAX_CHOICES:
        raise InvalidRequest(f"`best_of` must be between 1 and {MAX_CHOICES}, got {count}.", param="best_of")
    return count
