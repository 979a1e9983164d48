"""Replies and frames of vLLM's /v1/completions: which keys, in which order, with which nulls.

Rule: every key here stands at the same place in a recorded reply of vLLM 0.32; the conformance tests hold the two
against each other.
"""

from typing import Literal

from loadtest.job import Choice, Job
from loadtest.wire import framed
from loadtest.wire_errors import busy, failed
from loadtest.wire_usage import CONTENT_TYPE, DONE, FINGERPRINT, counts, whole_usage, with_fingerprint, with_usage

Echo = Literal["no", "before", "only"]
"""Where the prompt comes back: not at all, before the reply, or in its place."""


class CompletionWire:
    """/v1/completions."""

    content_type = CONTENT_TYPE
    end = DONE
    framed = staticmethod(framed)
    busy = staticmethod(busy)
    failed = staticmethod(failed)

    def __init__(self, model: str, echo: Echo = "no") -> None:
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
        text = self._shown(job.choices[choice], delta.text if delta else "", first=index == 0)
        shown: dict[str, object] = {"index": choice, "text": text, "logprobs": None}
        shown["finish_reason"] = utterance.finish if last else None
        shown["stop_reason"] = utterance.stop_reason if last else None
        first = index == 0 and (job.return_token_ids or self._echo != "no")
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
        return {
            "index": index,
            "text": self._shown(choice, choice.utterance.text, first=True),
            "logprobs": None,
            "finish_reason": choice.utterance.finish,
            "stop_reason": choice.utterance.stop_reason,
            "token_ids": list(choice.utterance.tokens) if job.return_token_ids else None,
            "prompt_logprobs": None,
            "prompt_token_ids": list(choice.prompt) if job.return_token_ids else None,
            "routed_experts": None,
        }

    def _shown(self, choice: Choice, said: str, *, first: bool) -> str:
        prompt = (choice.prompt_text or "") if first and self._echo != "no" else ""
        return prompt if self._echo == "only" else prompt + said

    def _chunk(self, job: Job, choices: list[dict[str, object]]) -> dict[str, object]:
        return {
            "id": job.request_id,
            "object": "text_completion",
            "created": job.created,
            "model": self._model,
            "choices": choices,
        }
