"""Replies and stream frames of TGI 3.3, from its documented schema. Not verified against a running server.

Rule: keys and nesting are those of TGI's published OpenAPI schema; where that is silent, the simplest reading is taken.
"""

from loadtest.job import Job
from loadtest.utterance import Utterance
from loadtest.wire import dump
from loadtest.wire_errors import WireError

FINGERPRINT = "3.3.7-emulated"
LOGPROB = -0.5
"""The emulated model has no probabilities; every token is as likely as any other."""


def tgi_error(status: int, message: str, kind: str) -> WireError:
    """TGI's error body: two strings."""
    return WireError(status, {"error": message, "error_type": kind})


def invalid_input(message: str) -> WireError:
    return tgi_error(422, f"Input validation error: {message}", "validation")


class TgiWire:
    """What TGI's native and OpenAI routes have in common."""

    content_type = "text/event-stream"
    end = b""

    def framed(self, value: object) -> bytes:
        return b"data:" + dump(value) + b"\n\n"

    def error(self) -> object:
        return {"error": "Request failed during generation: emulated", "error_type": "generation"}

    def busy(self) -> WireError:
        return tgi_error(429, "Model is overloaded", "overloaded")

    def failed(self, status: int = 424) -> WireError:
        return tgi_error(status, "Request failed during generation: emulated", "generation")

    def opening(self, job: Job, choice: int) -> object | None:
        return None

    def closing(self, job: Job) -> object | None:
        return None


class GenerateWire(TgiWire):
    """/generate, /generate_stream and the compatible route /."""

    def __init__(self, details: bool, seed: int | None, as_list: bool = False) -> None:
        self._details = details
        self._seed = seed
        self._as_list = as_list

    def whole(self, job: Job) -> object:
        choice = job.choices[0]
        body: dict[str, object] = {"generated_text": (choice.prompt_text or "") + choice.utterance.text}
        if self._details:
            tokens = [_token(choice.utterance, index) for index in range(len(choice.utterance.tokens))]
            body["details"] = {**self._ended(job), "prefill": [], "tokens": tokens}
        return [body] if self._as_list else body

    def token(self, job: Job, choice: int, index: int) -> object | None:
        utterance = job.choices[choice].utterance
        last = index + 1 == len(utterance.tokens)
        whole = (job.choices[choice].prompt_text or "") + utterance.text
        return {
            "index": index + 1,
            "token": _token(utterance, index),
            "generated_text": whole if last else None,
            "details": {**self._ended(job), "input_length": job.prompt_tokens} if last else None,
        }

    def _ended(self, job: Job) -> dict[str, object]:
        utterance = job.choices[0].utterance
        generated = len(utterance.tokens)
        return {"finish_reason": _native_finish(utterance), "generated_tokens": generated, "seed": self._seed}


class TgiChatWire(TgiWire):
    """/v1/chat/completions."""

    end = b"data: [DONE]\n\n"

    def __init__(self, model: str) -> None:
        self._model = model

    def error(self) -> object:
        return {"error": {"message": "Request failed during generation: emulated", "http_status_code": 424}}

    def whole(self, job: Job) -> object:
        utterance = job.choices[0].utterance
        message: dict[str, object] = {"role": "assistant", "content": utterance.text}
        if utterance.call:
            message = {"role": "assistant", "tool_calls": [_tool_call(*utterance.call)]}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": utterance.finish}
        return {**self._envelope(job, "chat.completion"), "choices": [choice], "usage": _usage(job)}

    def token(self, job: Job, choice: int, index: int) -> object | None:
        utterance = job.choices[choice].utterance
        delta, last = utterance.deltas[index], index + 1 == len(utterance.deltas)
        shown: dict[str, object] = {"role": "assistant", "content": delta.text if delta else ""}
        if delta is not None and delta.kind != "content":
            name = delta.text if delta.kind == "call" else None
            function = {"name": name, "arguments": "" if name else delta.text}
            shown = {
                "role": "assistant",
                "tool_calls": [{"index": 0, "id": "0", "type": "function", "function": function}],
            }
        elif delta is None and not last:
            return None
        finish = utterance.finish if last else None
        body: dict[str, object] = {
            **self._envelope(job, "chat.completion.chunk"),
            "choices": [{"index": choice, "delta": shown, "logprobs": None, "finish_reason": finish}],
        }
        if job.include_usage:
            body["usage"] = None
        return body

    def closing(self, job: Job) -> object | None:
        if not job.include_usage:
            return None
        return {**self._envelope(job, "chat.completion.chunk"), "choices": [], "usage": _usage(job)}

    def _envelope(self, job: Job, kind: str) -> dict[str, object]:
        return {
            "object": kind,
            "id": "",
            "created": job.created,
            "model": self._model,
            "system_fingerprint": FINGERPRINT,
        }


def _token(utterance: Utterance, index: int) -> dict[str, object]:
    delta = utterance.deltas[index]
    text = delta.text if delta else ""
    return {"id": utterance.tokens[index], "text": text, "logprob": LOGPROB, "special": not text}


def _native_finish(utterance: Utterance) -> str:
    if utterance.finish == "length":
        return "length"
    return "stop_sequence" if utterance.stop_reason else "eos_token"


def _tool_call(name: str, arguments: str) -> dict[str, object]:
    function = {"description": None, "name": name, "arguments": arguments}
    return {"id": "0", "type": "function", "function": function}


def _usage(job: Job) -> dict[str, object]:
    return {
        "prompt_tokens": job.prompt_tokens,
        "completion_tokens": job.decode_tokens,
        "total_tokens": job.prompt_tokens + job.decode_tokens,
    }
