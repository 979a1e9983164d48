"""Replies and stream frames of vLLM's OpenAI routes: which keys, in which order, with which nulls.

Rule: every key here stands at the same place in a recorded reply of vLLM 0.32; the conformance tests hold the two
against each other. A frame is one Server-Sent Event.
"""

import json
from collections.abc import Mapping
from typing import Protocol

import msgspec
from xxhash import xxh3_64_hexdigest

from loadtest.job import Job
from loadtest.utterance import Delta
from loadtest.wire_errors import WireError, busy, failed

FINGERPRINT = "vllm-0.32.0-emulated"
DONE = b"data: [DONE]\n\n"
CONTENT_TYPE = "text/event-stream; charset=utf-8"


class Wire(Protocol):
    """One reply format. A method that may answer None has nothing to show at that point."""

    content_type: str
    end: bytes
    """What closes a stream."""

    def framed(self, value: object) -> bytes:
        """One event of a stream."""

    def whole(self, job: Job) -> object:
        """The body of a reply that is not streamed."""

    def opening(self, job: Job, choice: int) -> object | None:
        """The frame before the first token of a choice."""

    def token(self, job: Job, choice: int, index: int) -> object | None:
        """The frame of one token."""

    def closing(self, job: Job) -> object | None:
        """The frame after the last token."""

    def error(self) -> object:
        """The frame of an error after the first byte."""

    def busy(self) -> WireError:
        """The refusal at the admission limit."""

    def failed(self, status: int = 500) -> WireError:
        """The reply of an engine that could not generate."""


def dump(value: object) -> bytes:
    """JSON as on the wire: no spaces; a lone surrogate never leaves."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


def framed(value: object) -> bytes:
    """One Server-Sent Event."""
    return b"data: " + dump(value) + b"\n\n"


class ChatWire:
    """/v1/chat/completions."""

    content_type = CONTENT_TYPE
    end = DONE
    framed = staticmethod(framed)
    busy = staticmethod(busy)
    failed = staticmethod(failed)

    def __init__(self, model: str) -> None:
        self._model = model

    def whole(self, job: Job) -> object:
        return {
            "id": job.request_id,
            "object": "chat.completion",
            "created": job.created,
            "model": self._model,
            "choices": [self._choice(job, index) for index in range(len(job.choices))],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": _whole_usage(job, _details(job, job.created_cache_tokens)),
            "prompt_logprobs": None,
            "prompt_token_ids": list(job.choices[0].prompt) if job.return_token_ids else None,
            "prompt_text": None,
            "kv_transfer_params": job.transfer_params,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def opening(self, job: Job, choice: int) -> object | None:
        delta = {"role": "assistant", "content": ""}
        body = self._chunk(job, [{"index": choice, "delta": delta, "logprobs": None, "finish_reason": None}])
        if job.continuous_usage:
            body["usage"] = _running_usage(job, 0)
        body["prompt_token_ids"] = list(job.choices[choice].prompt) if job.return_token_ids else None
        body["prompt_text"] = None
        return body

    def token(self, job: Job, choice: int, index: int) -> object | None:
        utterance = job.choices[choice].utterance
        delta = utterance.deltas[index]
        last = index + 1 == len(utterance.deltas)
        if delta is None and not last and not job.return_token_ids:
            return None
        shown: dict[str, object] = {"index": choice, "delta": _chat_delta(delta, job, choice), "logprobs": None}
        shown["finish_reason"] = utterance.finish if last else None
        if last:
            shown["stop_reason"] = utterance.stop_reason
        shown["token_ids"] = [utterance.tokens[index]] if job.return_token_ids else None
        body = self._chunk(job, [shown])
        return _finish_chunk(job, body, last, index + 1)

    def closing(self, job: Job) -> object | None:
        details: dict[str, object] = {"cached_tokens": job.cached_tokens}
        details["created_cache_tokens"] = job.created_cache_tokens
        return _usage_chunk(job, self._chunk(job, []), details)

    def error(self) -> object:
        return failed().body

    def _choice(self, job: Job, index: int) -> dict[str, object]:
        utterance = job.choices[index].utterance
        message: dict[str, object] = {
            "role": "assistant",
            "content": None if utterance.call else utterance.text,
            "refusal": None,
            "annotations": None,
            "audio": None,
            "function_call": None,
        }
        if utterance.call:
            name, arguments = utterance.call
            function = {"name": name, "arguments": arguments}
            message["tool_calls"] = [{"id": _call_id(job, index), "type": "function", "function": function}]
        message["reasoning"] = None
        return {
            "index": index,
            "message": message,
            "logprobs": None,
            "finish_reason": utterance.finish,
            "stop_reason": utterance.stop_reason,
            "token_ids": list(utterance.tokens) if job.return_token_ids else None,
            "routed_experts": None,
        }

    def _chunk(self, job: Job, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": job.request_id,
            "object": "chat.completion.chunk",
            "created": job.created,
            "model": self._model,
            "choices": choices,
        }


class CompletionWire:
    """/v1/completions. `echo` puts the prompt before the reply."""

    content_type = CONTENT_TYPE
    end = DONE
    framed = staticmethod(framed)
    busy = staticmethod(busy)
    failed = staticmethod(failed)

    def __init__(self, model: str, echo: bool) -> None:
        self._model = model
        self._echo = echo

    def whole(self, job: Job) -> object:
        return {
            "id": job.request_id,
            "object": "text_completion",
            "created": job.created,
            "model": self._model,
            "choices": [self._choice(job, index) for index in range(len(job.choices))],
            "service_tier": None,
            "system_fingerprint": FINGERPRINT,
            "usage": _whole_usage(job, _details(job, None)),
            "kv_transfer_params": job.transfer_params,
            "ec_transfer_params": None,
            "metrics": None,
        }

    def opening(self, job: Job, choice: int) -> object | None:
        return None

    def token(self, job: Job, choice: int, index: int) -> object | None:
        utterance = job.choices[choice].utterance
        delta = utterance.deltas[index]
        last = index + 1 == len(utterance.deltas)
        text = delta.text if delta else ""
        if self._echo and index == 0:
            text = (job.choices[choice].prompt_text or "") + text
        shown: dict[str, object] = {"index": choice, "text": text, "logprobs": None}
        shown["finish_reason"] = utterance.finish if last else None
        shown["stop_reason"] = utterance.stop_reason if last else None
        first = job.return_token_ids and index == 0
        shown["prompt_token_ids"] = list(job.choices[choice].prompt) if first else None
        shown["token_ids"] = [utterance.tokens[index]] if job.return_token_ids else None
        return _finish_chunk(job, self._chunk(job, [shown]), False, index + 1)

    def closing(self, job: Job) -> object | None:
        return _usage_chunk(job, self._chunk(job, []), {"cached_tokens": job.cached_tokens})

    def error(self) -> object:
        return failed().body

    def _choice(self, job: Job, index: int) -> dict[str, object]:
        choice = job.choices[index]
        echoed = (choice.prompt_text or "") if self._echo else ""
        return {
            "index": index,
            "text": echoed + choice.utterance.text,
            "logprobs": None,
            "finish_reason": choice.utterance.finish,
            "stop_reason": choice.utterance.stop_reason,
            "token_ids": list(choice.utterance.tokens) if job.return_token_ids else None,
            "prompt_logprobs": None,
            "prompt_token_ids": list(choice.prompt) if job.return_token_ids else None,
            "routed_experts": None,
        }

    def _chunk(self, job: Job, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": job.request_id,
            "object": "text_completion",
            "created": job.created,
            "model": self._model,
            "choices": choices,
        }


def _chat_delta(delta: Delta | None, job: Job, choice: int) -> dict[str, object]:
    if delta is None:
        return {}
    if delta.kind == "content":
        return {"content": delta.text}
    call: dict[str, object] = {"index": 0, "function": {"arguments": delta.text}}
    if delta.kind == "call":
        call = {"id": _call_id(job, choice), "type": "function", "index": 0, "function": {"name": delta.text}}
    return {"content": None, "tool_calls": [call]}


def _call_id(job: Job, choice: int) -> str:
    return f"chatcmpl-tool-{xxh3_64_hexdigest(f'{job.unique_id}:{choice}'.encode())}"


def _finish_chunk(job: Job, body: dict[str, object], stamped: bool, decode_tokens: int) -> dict[str, object]:
    """The running usage, and the fingerprint on a last frame that no usage frame follows."""
    if job.continuous_usage:
        body["usage"] = _running_usage(job, decode_tokens)
    if stamped and not job.include_usage:
        body["system_fingerprint"] = FINGERPRINT
    return body


def _usage_chunk(job: Job, body: dict[str, object], details: Mapping[str, object]) -> dict[str, object] | None:
    if not job.include_usage:
        return None
    body["usage"] = {**_counts(job), "prompt_tokens_details": details if job.usage_details else None}
    body["system_fingerprint"] = FINGERPRINT
    return body


def _counts(job: Job) -> dict[str, object]:
    return {
        "prompt_tokens": job.prompt_tokens,
        "total_tokens": job.prompt_tokens + job.decode_tokens,
        "completion_tokens": job.decode_tokens,
    }


def _running_usage(job: Job, decode_tokens: int) -> dict[str, object]:
    return {
        "prompt_tokens": job.prompt_tokens,
        "total_tokens": job.prompt_tokens + decode_tokens,
        "completion_tokens": decode_tokens,
        "completion_tokens_details": None,
    }


def _whole_usage(job: Job, details: Mapping[str, object] | None) -> dict[str, object]:
    return {**_counts(job), "prompt_tokens_details": details, "completion_tokens_details": None}


def _details(job: Job, created_cache_tokens: int | None) -> dict[str, object] | None:
    if not job.usage_details:
        return None
    return {
        "cached_tokens": job.cached_tokens,
        "created_cache_tokens": created_cache_tokens,
        "multimodal_tokens": None,
    }
