"""Replies and frames of vLLM's /v1/completions: which keys, in which order, with which nulls.

Rule: every key here stands at the same place in a recorded reply of vLLM 0.32; the conformance tests hold the two
against each other.
"""

from loadtest.job import Job
from loadtest.wire import framed
from loadtest.wire_errors import busy, failed
from loadtest.wire_usage import CONTENT_TYPE, DONE, FINGERPRINT, counts, whole_usage, with_fingerprint, with_usage


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
            "usage": whole_usage(job, None),
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
        body = self._chunk(job, [shown])
        if job.continuous_usage:
            body["usage"] = counts(len(job.choices[choice].prompt), index + 1)
        return with_fingerprint(job, body) if last else body

    def closing(self, job: Job) -> object | None:
        return with_usage(job, self._chunk(job, []), {"cached_tokens": job.cached_tokens})

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
