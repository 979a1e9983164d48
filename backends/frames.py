"""What one frame of an event stream says: the frames of the OpenAI API, TGI's own frames, SGLang's error shapes.

The rule: read what is there, infer nothing. Usage is what the engine last said, never a sum; zero is a value and
absent is None. A frame that is no JSON changes nothing here.
"""

import json
from collections.abc import Mapping
from typing import Final

import msgspec

Json = Mapping[str, object]

_CONTENT_FIELDS: Final = (
    "content",
    "reasoning",
    "reasoning_content",
    "tool_calls",
    "function_call",
    "refusal",
    "audio",
)


class Usage(msgspec.Struct, frozen=True):
    """Token counts as the engine reported them; None where it does not say. Reasoning is part of the completion."""

    prompt_tokens: int
    cached_tokens: int | None
    completion_tokens: int
    reasoning_tokens: int | None = None


class Facts:
    """What is known of a stream so far.

    frames: data frames seen; more, where an engine that counts on the way told of more tokens. told_at: how many there
    were when the usage was last told. first_content: a non-empty piece of text, reasoning or tool call was seen.
    finish_reasons: by choice index, as the engine spells them. error: the first error, as an object. done: `[DONE]` was
    seen.
    """

    __slots__ = ("done", "error", "finish_reasons", "first_content", "frames", "told_at", "usage")

    def __init__(self) -> None:
        self.usage: Usage | None = None
        self.frames = 0
        self.told_at = 0
        self.first_content = False
        self.finish_reasons: dict[int, str] = {}
        self.error: Json | None = None
        self.done = False


def payload_of(frame: bytes) -> bytes | None:
    """The data of a frame, its lines joined by LF; None for a frame without data (comments, blank lines)."""
    if frame.startswith(b"data:") and frame.find(b"\n") == len(frame) - 2 and frame.find(b"\r") < 0:
        return frame[5:-2].removeprefix(b" ")  # one line and its end, as nearly always
    lines = [line[5:].removeprefix(b" ") for line in frame.splitlines() if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def read_frame(facts: Facts, payload: bytes) -> bool:
    """Enter what `payload` says into `facts`. True if the frame carries usage and nothing else."""
    if payload.strip() == b"[DONE]":
        facts.done = True
        return False
    body = _object(_decoded(payload))
    error = _error(body) if "error" in body or body.get("object") == "error" else None
    facts.error = facts.error or error
    if usage := body.get("usage"):
        facts.usage = _usage(_object(usage), facts.usage)
    choices = body.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        _read_choice(facts, _object(choice))
    if "token" in body or "generated_text" in body:
        _read_tgi(facts, body)
    return choices == [] and error is None and bool(_object(usage))


def usage_of(body: bytes) -> Usage | None:
    """The usage of an answer that came as a whole, whatever is wrong with the rest of it."""
    return _usage(_object(_object(_decoded(body)).get("usage")), None)


def _decoded(payload: bytes) -> object:
    try:
        return msgspec.json.decode(payload)
    except (msgspec.DecodeError, RecursionError):
        return _decoded_leniently(payload)


def _decoded_leniently(payload: bytes) -> object:
    # Bytes that are not UTF-8, NaN and lone surrogates do occur, and the keys around them still count.
    try:
        return json.loads(payload.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _object(value: object) -> Json:
    return value if isinstance(value, dict) else {}


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _error(body: Json) -> Json | None:
    error = body.get("error")
    if isinstance(error, dict):
        return error
    if isinstance(error, str):
        return {"message": error, "type": body.get("error_type")}
    return body if body.get("object") == "error" else None


def _usage(usage: Json, last: Usage | None) -> Usage | None:
    prompt, completion = _count(usage.get("prompt_tokens")), _count(usage.get("completion_tokens"))
    if prompt is None and (last is None or completion is None):
        return last  # what a prompt took is not nothing because nobody says it
    before = last or Usage(0, None, 0)
    cached = _count(_object(usage.get("prompt_tokens_details")).get("cached_tokens"))
    reasoning = _count(_object(usage.get("completion_tokens_details")).get("reasoning_tokens"))
    return Usage(
        prompt_tokens=before.prompt_tokens if prompt is None else prompt,
        cached_tokens=before.cached_tokens if cached is None else cached,
        completion_tokens=before.completion_tokens if completion is None else completion,
        reasoning_tokens=before.reasoning_tokens if reasoning is None else reasoning,
    )


def _read_choice(facts: Facts, choice: Json) -> None:
    if not facts.first_content:
        delta = _object(choice.get("delta"))
        facts.first_content = bool(choice.get("text")) or any(map(delta.get, _CONTENT_FIELDS))
    reason = choice.get("finish_reason")
    if isinstance(reason, str):
        facts.finish_reasons[_count(choice.get("index")) or 0] = reason


def _read_tgi(facts: Facts, body: Json) -> None:
    """TGI's `/generate_stream` (router/src/lib.rs, StreamResponse): no `[DONE]`; `generated_text` ends the stream."""
    token = _object(body.get("token"))
    if token.get("text") and not token.get("special"):
        facts.first_content = True
    if not isinstance(body.get("generated_text"), str):
        return
    details = _object(body.get("details"))
    facts.finish_reasons[0] = str(details.get("finish_reason") or "stop")
    prompt, completion = _count(details.get("input_length")), _count(details.get("generated_tokens"))
    if prompt is not None and completion is not None:
        facts.usage = Usage(prompt, None, completion)
