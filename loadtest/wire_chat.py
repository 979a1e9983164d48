"""Replies and frames of vLLM's /v1/chat/completions: which keys, in which order, with which nulls.

Rule: every key here stands at the same place in a recorded reply of vLLM 0.32; the conformance tests hold the two
against each other.
"""

from xxhash import xxh3_64_hexdigest

from loadtest.job import Job
from loadtest.utterance import Delta
from loadtest.wire import framed
from loadtest.wire_errors import busy, failed
from loadtest.wire_usage import (
    CONTENT_TYPE,
    DONE,
    FINGERPRINT,
    counts,
    whole_usage,
    with_fingerprint,
    with_usage,
)


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
            "usage": whole_usage(job, job.created_cache_tokens),
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
            body["usage"] = self._running(job, 0)
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
        if job.continuous_usage:
            body["usage"] = self._running(job, index + 1)
        return with_fingerprint(job, body) if last else body

    def closing(self, job: Job) -> object | None:
        cache = {"cached_tokens": job.cached_tokens, "created_cache_tokens": job.created_cache_tokens}
        return with_usage(job, self._chunk(job, []), cache)

    def error(self) -> object:
        return failed().body

    def _running(self, job: Job, decode_tokens: int) -> dict[str, object]:
        return {**counts(job.prompt_tokens, decode_tokens), "completion_tokens_details": None}

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
