"""What an engine's whole answer says, and how it is told to the client.

Rule: read without changing; the one thing rewritten is the model's name, so that the client reads the one it used.
"""

from collections.abc import Mapping

import msgspec

from backends.engines.errors import read_error
from backends.frames import Usage
from gateway.errors import ErrorReply
from gateway.job import Job
from gateway.relay import Renaming


class _UsageOnly(msgspec.Struct):
    usage: object = None


_USAGE = msgspec.json.Decoder(_UsageOnly)


def told(job: Job, status: int, body: bytes) -> bytes:
    """The engine's own error object as it came; every other shape in the dialect's."""
    error = read_error(status, body)
    if error.spoken and body.lstrip().startswith(b'{"error":{'):
        return body
    reply = ErrorReply(status, error.type or "invalid_request_error", None, error.message, error.param)
    return job.call.dialect.error(reply)


def renaming_of(job: Job) -> Renaming | None:
    """What to rename in answers, so that the client reads the name it used."""
    upstream = job.service.model.upstream_name
    if job.call.model == upstream:
        return None
    old, new = msgspec.json.encode(upstream), msgspec.json.encode(job.call.model)
    return Renaming(b'"model":' + old, b'"model":' + new)


def usage_of(body: bytes) -> Usage | None:
    """The usage of a whole answer; `None` if it has none that can be read."""
    try:
        usage = _USAGE.decode(body).usage
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(usage, Mapping) or not isinstance(usage.get("prompt_tokens"), int):
        return None
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, Mapping) else None
    completion = usage.get("completion_tokens")
    return Usage(
        usage["prompt_tokens"],
        cached if isinstance(cached, int) else None,
        completion if isinstance(completion, int) else 0,
    )
