"""The one table of what a client sees differently through the gateway than from vLLM itself, and why.

Rule: what is not in it must not differ, and what is in it must. docs/vllm.md shows it; a test holds the two together.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tests.vllm.answers import FINGERPRINT, OUR_WORDS, VLLMS_WORDS, Differences

WORDS: Differences = {"error.message": (VLLMS_WORDS, OUR_WORDS)}


@dataclass(frozen=True, slots=True)
class Known:
    """One difference, seen with these recorded requests."""

    requests: tuple[str, ...]
    why: str
    differs: Differences


def refused(status: int, type: str, param: str | None, ours: str | None) -> Differences:
    """vLLM's error and our own of the same status: its `code` is the status, ours names the case or is null."""
    params: Differences = {} if param == ours else {"error.param": (param, ours)}
    return WORDS | {"error.type": (type, "invalid_request_error"), "error.code": (status, None)} | params


KNOWN = (
    Known(
        ("err_bad_json",),
        "Refused before it is sent on.",
        refused(400, "Bad Request", "body.34", None),
    ),
    Known(("err_empty_body",), "Refused before it is sent on.", refused(400, "Bad Request", "body", None)),
    Known(("err_wrong_content_type",), "Refused before it is sent on.", refused(400, "Bad Request", None, None)),
    Known(
        ("err_no_messages",), "Refused before it is sent on.", refused(400, "Bad Request", "body.messages", "messages")
    ),
    Known(("err_empty_messages",), "Refused before it is sent on.", refused(400, "BadRequestError", None, "messages")),
    Known(
        ("err_max_tokens_zero", "err_max_tokens_negative"),
        "Refused before it is sent on.",
        refused(400, "BadRequestError", "max_tokens", "max_tokens"),
    ),
    Known(
        ("err_unknown_model", "err_unknown_model_stream"),
        "The same whether a model does not exist or is not open to the tenant; OpenAI's code.",
        WORDS | {"error.type": ("NotFoundError", "invalid_request_error"), "error.code": (404, "model_not_found")},
    ),
    Known(
        ("cache_salt_empty",),
        "The field is the gateway's: a client's value is replaced, so it cannot be wrong.",
        {
            "status": (400, 200),
            "error.message": (VLLMS_WORDS, None),
            "error.type": ("BadRequestError", None),
            "error.param": ("cache_salt", None),
            "error.code": (400, None),
        },
    ),
    Known(
        ("priority_str",),
        "The field is the gateway's: a client's value is replaced, so it cannot be wrong.",
        {
            "status": (400, 200),
            "error.message": (VLLMS_WORDS, None),
            "error.type": ("Bad Request", None),
            "error.param": ("body.priority", None),
            "error.code": (400, None),
        },
    ),
    Known(
        (
            "chat_stream",
            "chat_stream_forced_usage",
            "chat_return_token_ids_stream",
            "chat_tools_forced_stream",
            "completions_echo_max0_stream",
        ),
        "It stands on the usage frame, which the gateway asks for and removes where the client did not ask.",
        {FINGERPRINT: (True, None)},
    ),
    Known(
        ("models",),
        "The gateway's own list: what the tenant may use, by every name, and nothing of the engine's set-up.",
        {
            "body.data[].root": ("str", None),
            "body.data[].parent": ("NoneType", None),
            "body.data[].permission[].id": ("str", None),
            "body.data[].permission[].object": ("str", None),
            "body.data[].permission[].created": ("int", None),
            "body.data[].permission[].allow_create_engine": ("bool", None),
            "body.data[].permission[].allow_sampling": ("bool", None),
            "body.data[].permission[].allow_logprobs": ("bool", None),
            "body.data[].permission[].allow_search_indices": ("bool", None),
            "body.data[].permission[].allow_view": ("bool", None),
            "body.data[].permission[].allow_fine_tuning": ("bool", None),
            "body.data[].permission[].organization": ("str", None),
            "body.data[].permission[].group": ("NoneType", None),
            "body.data[].permission[].is_blocking": ("bool", None),
        },
    ),
    Known(
        ("notfound",),
        "An error object as for every other error.",
        {
            "body.detail": ("str", None),
            "error.message": (None, OUR_WORDS),
            "error.type": (None, "invalid_request_error"),
            "error.code": (None, "unknown_url"),
        },
    ),
    Known(
        ("method_not_allowed",),
        "An error object as for every other error.",
        {
            "body.detail": ("str", None),
            "error.message": (None, OUR_WORDS),
            "error.type": (None, "invalid_request_error"),
            "error.code": (None, "method_not_allowed"),
        },
    ),
    Known(
        ("embeddings",),
        "This vLLM serves no embeddings; its answer comes back as an error object.",
        {
            "body.detail": ("str", None),
            "error.message": (None, OUR_WORDS),
            "error.type": (None, "invalid_request_error"),
        },
    ),
    Known(
        ("health", "ping", "version", "load", "tokenize_prompt", "tokenize_messages", "detokenize"),
        "What is not in the gateway's table of paths is not forwarded.",
        {
            "status": (200, 404),
            "error.message": (None, OUR_WORDS),
            "error.type": (None, "invalid_request_error"),
            "error.code": (None, "unknown_url"),
        },
    ),
    Known(
        ("tokenize_unknown_model",),
        "What is not in the gateway's table of paths is not forwarded.",
        refused(404, "NotFoundError", "model", None) | {"error.code": (404, "unknown_url")},
    ),
)


def known(request: str) -> Differences:
    """What differs for a recorded request; nothing if it is in no row."""
    return next((row.differs for row in KNOWN if request in row.requests), {})


def table() -> Iterator[str]:
    """The table as Markdown."""
    yield "| request | what: at vLLM → through kvgate | why |"
    yield "|---|---|---|"
    for row in KNOWN:
        requests = ", ".join(f"`{request}`" for request in row.requests)
        yield f"| {requests} | {', '.join(_changed(row.differs))} | {row.why} |"


def _changed(differs: Differences) -> Iterator[str]:
    """`name` one → other; keys that are only missing are named together."""
    missing = [name.removeprefix("body.") for name, (_, ours) in differs.items() if ours is None]
    for name, (theirs, ours) in differs.items():
        if ours is not None:
            yield f"`{name}` {'none' if theirs is None else theirs} → {ours}"
    if missing:
        yield "without " + ", ".join(f"`{name}`" for name in missing)
