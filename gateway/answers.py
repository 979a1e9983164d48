"""What an engine's whole answer says, and how it is told to the client.

Rule: read without changing; the one thing rewritten is the model's name, so that the client reads the one it used.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Final

import msgspec

from backends import frames
from backends.engines.errors import read_error
from backends.frames import Usage
from gateway.dialects.openai_messages import decoded
from gateway.errors import ErrorReply
from gateway.job import Job
from gateway.relay import Renaming

Count = Annotated[int, msgspec.Meta(ge=0)]


class _Details(msgspec.Struct):
    cached_tokens: Count | None = None


class _Reasoning(msgspec.Struct):
    reasoning_tokens: Count | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count
    completion_tokens: Count | None = None
    prompt_tokens_details: _Details | None = None
    completion_tokens_details: _Reasoning | None = None


class _Answer(msgspec.Struct):
    usage: _Usage | None = None


_ANSWER = msgspec.json.Decoder(_Answer)
_SAID: Final = ("content", "reasoning", "reasoning_content", "refusal")
_TRACE: Final = b'\\n  File \\"'
"""How a stack trace begins inside a JSON string; some engines add one to what they say of a field."""


def told(job: Job, status: int, body: bytes) -> bytes:
    """The engine's own error object as it came; every other shape, and what shows its code, in the dialect's."""
    error = read_error(status, body)
    if error.spoken and body.lstrip().startswith(b'{"error":{') and _TRACE not in body:
        return body
    reply = ErrorReply(status, error.type or "invalid_request_error", None, error.message, error.param)
    return job.call.dialect.error(reply)


def renaming_of(job: Job) -> Renaming | None:
    """What to rename in answers, so that the client reads the name it used."""
    upstream = job.service.upstream_name
    if job.call.model == upstream:
        return None
    return Renaming.between(upstream, job.call.model)


def usage_of(body: bytes) -> Usage | None:
    """The usage of a whole answer; `None` if it has none that can be read."""
    try:
        usage = _ANSWER.decode(body).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return frames.usage_of(body)
    if usage is None:
        return None
    prompt, completion = usage.prompt_tokens_details, usage.completion_tokens_details
    return Usage(
        usage.prompt_tokens,
        prompt.cached_tokens if prompt else None,
        usage.completion_tokens or 0,
        completion.reasoning_tokens if completion else None,
    )


def said(body: bytes) -> str:
    """All that was generated in a whole answer, of all its choices, reasoning and calls of tools included."""
    return "".join([text for choice in _objects(decoded(body).get("choices")) for text in _generated(choice)])


def _generated(choice: Mapping[str, object]) -> Iterator[str]:
    message = _object(choice.get("message"))
    yield from _texts(choice.get("text"), *map(message.get, _SAID))
    yield from (text for part in _objects(message.get("content")) for text in _texts(part.get("text")))
    calls = [_object(call.get("function")) for call in _objects(message.get("tool_calls"))]
    for call in (*calls, _object(message.get("function_call"))):
        yield from _texts(call.get("name"), call.get("arguments"))


def _texts(*values: object) -> Iterator[str]:
    return (value for value in values if isinstance(value, str))


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _objects(values: object) -> list[Mapping[str, object]]:
    return [_object(value) for value in values] if isinstance(values, list) else []
