"""What both of vLLM's generation routes have in common: usage, whole and running, and the end of a stream.

Rule: every key here stands at the same place in a recorded reply of vLLM 0.32; the conformance tests hold the two
against each other.
"""

from collections.abc import Mapping

from loadtest.job import Job

FINGERPRINT = "vllm-0.32.0-emulated"
CONTENT_TYPE = "text/event-stream; charset=utf-8"
DONE = b"data: [DONE]\n\n"


def counts(prompt_tokens: int, decode_tokens: int) -> dict[str, object]:
    """The three counts: of one choice so far, or of them all."""
    return {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + decode_tokens,
        "completion_tokens": decode_tokens,
    }


def whole_usage(job: Job, created_cache_tokens: int | None) -> dict[str, object]:
    """The usage of a reply in one piece; details are null where the server does not give them."""
    details = {
        "cached_tokens": job.cached_tokens,
        "created_cache_tokens": created_cache_tokens,
        "multimodal_tokens": None,
    }
    return {
        **counts(job.prompt_tokens, job.decode_tokens),
        "prompt_tokens_details": details if job.usage_details else None,
        "completion_tokens_details": None,
    }


def with_usage(job: Job, body: dict[str, object], details: Mapping[str, object]) -> dict[str, object] | None:
    """The frame after the last token, where usage was asked for; on it, what is null is left out."""
    if not job.include_usage:
        return None
    usage = counts(job.prompt_tokens, job.decode_tokens)
    if job.usage_details:
        usage["prompt_tokens_details"] = details
    return {**body, "usage": usage, "system_fingerprint": FINGERPRINT}


def with_fingerprint(job: Job, body: dict[str, object]) -> dict[str, object]:
    """The fingerprint on a last frame of a choice, unless a usage frame follows and carries it."""
    return body if job.include_usage else {**body, "system_fingerprint": FINGERPRINT}
