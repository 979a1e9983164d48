"""The request bodies of vLLM's OpenAI routes, as far as the emulated engine acts on them.

Rule: unknown fields are taken and ignored, as vLLM does. Types are checked by pydantic, values by `check`, in the order
in which vLLM finds them; the first fault is the one that is told.
"""

import json
from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loadtest.engine_settings import Settings
from loadtest.text import Manner
from loadtest.wire_errors import (
    WireError,
    bad_json,
    empty_body,
    invalid,
    malformed,
    unexpected_field,
    unknown_model,
    unsupported_media_type,
)

CACHE_SALT_CHARACTERS = 128
CACHE_SALT_FORBIDDEN = frozenset("@/\\\0")


Texts = str | list[int] | list[str] | list[list[int]]
"""One text or several, as text or as token ids."""


class StreamOptions(BaseModel):
    include_usage: bool | None = False
    continuous_usage_stats: bool | None = False


class Body(BaseModel):
    """What all routes have in common."""

    model_config = ConfigDict(extra="allow", frozen=True)

    model: str | None = None
    kvgate_fault: str | None = None


class GenerationBody(Body):
    """What both generation routes have in common."""

    max_tokens: int | None = None
    min_tokens: int = 0
    temperature: float | None = None
    n: int | None = 1
    seed: int | None = None
    stop: str | list[str] | None = None
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    cache_salt: str | None = None
    priority: int = 0
    kv_transfer_params: dict[str, Any] | None = None
    truncate_prompt_tokens: int | None = None
    return_token_ids: bool | None = None

    @property
    def asked_tokens(self) -> tuple[str, int | None]:
        """The parameter that bounds the reply and its value."""
        return ("max_tokens", self.max_tokens)

    @property
    def stops(self) -> tuple[str, ...]:
        return (self.stop,) if isinstance(self.stop, str) else tuple(self.stop or ())


class ChatBody(GenerationBody):
    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None

    @property
    def asked_tokens(self) -> tuple[str, int | None]:
        if self.max_completion_tokens is not None:
            return ("max_completion_tokens", self.max_completion_tokens)
        return ("max_tokens", self.max_tokens)


class CompletionBody(GenerationBody):
    prompt: Texts
    max_tokens: int | None = 16
    echo: bool | None = False

    @property
    def asked_tokens(self) -> tuple[str, int | None]:
        """A prompt that comes back alone takes one token, which is not shown."""
        return ("max_tokens", 1 if self.only_echoes else self.max_tokens)

    @property
    def only_echoes(self) -> bool:
        return bool(self.echo) and self.max_tokens == 0

    @property
    def prompts(self) -> list[str | list[int]]:
        return _each(self.prompt)


class TokenizeBody(Body):
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    return_token_strs: bool | None = False


class DetokenizeBody(Body):
    tokens: list[int] = Field(max_length=1_000_000)


class EmbeddingBody(Body):
    input: Texts
    encoding_format: str = "float"
    dimensions: int | None = Field(default=None, ge=1, le=8192)

    @property
    def inputs(self) -> list[str | list[int]]:
        return _each(self.input)


def _each(texts: Texts) -> list[str | list[int]]:
    """Raises `WireError` when there is nothing at all."""
    if isinstance(texts, str):
        return [texts]
    token_ids = [item for item in texts if isinstance(item, int)]
    several: list[str | list[int]] = [token_ids] if token_ids else [item for item in texts if not isinstance(item, int)]
    if not several:
        raise invalid("The prompt cannot be empty.")
    return several


Request = TypeVar("Request", bound=Body)


def read(kind: type[Request], content_type: str, raw: bytes) -> Request:
    """The body, its types checked. Raises `WireError`."""
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise unsupported_media_type()
    if not raw:
        raise empty_body()
    try:
        return kind.model_validate(json.loads(raw))
    except json.JSONDecodeError as error:
        raise bad_json(error) from None
    except UnicodeDecodeError:
        raise malformed([{"type": "json_invalid", "loc": (), "msg": "JSON decode error", "input": {}}]) from None
    except ValidationError as error:
        raise malformed(error.errors(include_url=False)) from None


def check_model(body: Body, settings: Settings) -> None:
    """A request without a model is for the one there is."""
    if body.model is not None and body.model != settings.served:
        raise unknown_model(body.model, settings.served)


def check(body: GenerationBody, settings: Settings) -> None:
    """The values of a generation request. Raises `WireError` for the first that the engine does not take."""
    check_model(body, settings)
    for fault in (_salt_fault(body), _options_fault(body, settings), _priority_fault(body, settings)):
        if fault is not None:
            raise fault
    if body.temperature is not None and body.temperature < 0:
        raise invalid(f"temperature must be non-negative, got {body.temperature}.", "temperature", body.temperature)
    if body.n is not None and body.n < 1:
        raise invalid(f"n must be at least 1, got {body.n}.", "n", body.n)
    _check_lengths(body, settings.max_model_len)


def _check_lengths(body: GenerationBody, max_model_len: int) -> None:
    param, asked = body.asked_tokens
    if asked is not None and asked < 1:
        raise invalid(f"max_tokens must be at least 1, got {asked}.", param, asked)
    if asked is not None and asked > max_model_len:
        message = f"{param}={asked} cannot be greater than max_model_len={max_model_len}. "
        raise invalid(message + "Please request fewer output tokens.", param, asked)
    if asked is not None and body.min_tokens > asked:
        message = f"min_tokens must be less than or equal to max_tokens={asked}, got {body.min_tokens}."
        raise invalid(message, "min_tokens", body.min_tokens)


def _salt_fault(body: GenerationBody) -> WireError | None:
    salt = body.cache_salt
    if salt is None:
        return None
    if not salt:
        return invalid("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if len(salt) > CACHE_SALT_CHARACTERS or CACHE_SALT_FORBIDDEN.intersection(salt):
        text = f"Parameter 'cache_salt' must have at most {CACHE_SALT_CHARACTERS} characters and none of @ / \\ NUL."
        return invalid(text, "cache_salt")
    return None


def _options_fault(body: GenerationBody, settings: Settings) -> WireError | None:
    if settings.refuse_stream_options and "stream_options" in body.model_fields_set:
        return unexpected_field("stream_options")
    if body.stream_options is not None and not body.stream:
        return invalid("Stream options can only be defined when `stream=True`.", "stream_options")
    return None


def _priority_fault(body: GenerationBody, settings: Settings) -> WireError | None:
    if body.priority and settings.scheduling_policy != "priority":
        return invalid(f"Got priority {body.priority} but priority scheduling is not enabled.")
    return None


def check_text_only(messages: list[dict[str, Any]], served: str) -> None:
    """The emulated model reads no images. Raises `WireError`."""
    if not messages:
        raise invalid("Cannot apply chat template to an empty conversation. Provide at least one message.")
    for message in messages:
        content = message.get("content")
        parts = content if isinstance(content, list) else []
        if any(isinstance(part, Mapping) and part.get("type") not in ("text", "thinking", None) for part in parts):
            raise invalid(f"{served} is not a multimodal model")


def check_prompt(prompt_tokens: int, max_model_len: int) -> None:
    """The prompt holds something and leaves room for at least one token. Raises `WireError`."""
    if not prompt_tokens:
        raise invalid("The prompt cannot be empty.")
    if prompt_tokens > max_model_len:
        counted = max_model_len + 1
        message = (
            f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains at least "
            f"{counted} input tokens, which exceeds this limit even without any output tokens. "
            "Please reduce the length of the input prompt."
        )
        raise invalid(message, "input_tokens", counted)
    if prompt_tokens == max_model_len:
        message = (
            f"The decoder prompt (length {prompt_tokens}) plus the number of requested output tokens (at least 1) "
            f"is longer than the maximum model length of {max_model_len}."
        )
        raise invalid(message)


def manner(body: GenerationBody, prompt_tokens: int, settings: Settings) -> Manner:
    """How the reply may run; a bound beyond the context is lowered to what remains of it."""
    room = settings.max_model_len - prompt_tokens
    asked = body.asked_tokens[1]
    return Manner(
        max_tokens=room if asked is None else min(room, asked),
        min_tokens=body.min_tokens,
        ignore_eos=body.ignore_eos,
        stop=body.stops,
        include_stop=body.include_stop_str_in_output,
        typical_tokens=settings.typical_output_tokens,
    )
