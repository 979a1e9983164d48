"""What the three OpenAI request bodies share: how they are parsed and what is read out of every one of them.

Rule: only what the pipeline needs is decoded; everything else stays raw. Numbers given as strings are accepted, as the
engines accept them.
"""

import re
from codecs import BOM_UTF8
from collections.abc import Sequence
from operator import attrgetter
from typing import Final, TypeVar

import msgspec
from msgspec import UNSET

from gateway.dialects.base import FORBIDDEN, LIMIT_FIELDS, OWNED
from gateway.dialects.characters import has_encoded, sound
from gateway.dialects.fields import top_level
from gateway.errors import InvalidRequest
from gateway.identity import NO_HINTS, SessionHints

Raw = msgspec.Raw | msgspec.UnsetType
MAX_CHOICES: Final = 128
LONG_BYTES: Final = 16_384
"""From so many bytes on it is worth while to look for names outside the messages only."""


class StreamOptions(msgspec.Struct):
    """`stream_options` as far as it matters."""

    include_usage: bool | None = None


class OpenAIBody(msgspec.Struct, kw_only=True):
    """The fields that all bodies may have."""

    model: str
    stream: bool | None = None
    n: int | None = None
    session_id: object = None
    previous_response_id: object = None
    conversation: object = None
    prompt_cache_key: object = None
    metadata: object = None
    truncate_prompt_tokens: object = None
    stream_options: Raw = UNSET
    max_tokens: Raw = UNSET
    max_completion_tokens: Raw = UNSET
    cache_salt: Raw = UNSET
    priority: Raw = UNSET
    request_id: Raw = UNSET
    kv_transfer_params: Raw = UNSET
    ec_transfer_params: Raw = UNSET
    chat_template: Raw = UNSET
    mm_processor_kwargs: Raw = UNSET
    bootstrap_host: Raw = UNSET
    bootstrap_port: Raw = UNSET
    bootstrap_room: Raw = UNSET
    rid: Raw = UNSET
    extra_key: Raw = UNSET
    session_params: Raw = UNSET
    routed_dp_rank: Raw = UNSET
    data_parallel_rank: Raw = UNSET


Body = TypeVar("Body", bound=OpenAIBody)
_seldom = attrgetter(*FORBIDDEN)
_NONE_SELDOM = (UNSET,) * len(FORBIDDEN)
_hinted = attrgetter("session_id", "previous_response_id", "conversation", "prompt_cache_key", "metadata")
_NO_HINTS_GIVEN = (None,) * 5
_QUOTED = {name: b'"%b"' % name.encode() for name in OWNED}
_OPTIONS = msgspec.json.Decoder(StreamOptions | None)
_MISSING = re.compile(r"missing required field `([^`]+)`")
_NUMBER = msgspec.json.Decoder(int | None, strict=False)
_MESSAGES = re.compile(rb'"messages"[ \t\r\n]*:[ \t\r\n]*\[[ \t\r\n]*')
_SPELLED_OUT = re.compile(rb"\\u00[4-7]")
"""A letter of ASCII written as an escape. No encoder does that; whoever does may be hiding a name."""


def parsed(decoder: msgspec.json.Decoder[Body], body: bytes) -> tuple[Body, bytes, int]:
    """What was read, the body it was read from, and in how many places that was mended (lone surrogates).

    Raises `InvalidRequest`, naming the field and what was expected there.
    """
    if has_encoded(body):
        body, mended = sound(body)
        return _read(decoder, body), body, mended
    try:
        return _read(decoder, body), body, 0
    except InvalidRequest:
        whole, mended = sound(body.removeprefix(BOM_UTF8))
        if whole is body:
            raise
        return _read(decoder, whole), whole, mended


def _read(decoder: msgspec.json.Decoder[Body], body: bytes) -> Body:
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        what, _, path = str(error).partition(" - at ")
        at = path.strip("`").removeprefix("$.")
        missing = _MISSING.search(what)
        param = at or (missing[1] if missing else None)
        raise InvalidRequest(f"{what} in the request body{f' at `{at}`' if at else ''}.", param=param) from None
    except msgspec.DecodeError as error:
        raise InvalidRequest(f"The request body is not valid JSON: {error}.") from None
    except (RecursionError, UnicodeDecodeError):
        raise InvalidRequest("The request body is nested too deeply or is not UTF-8.") from None


def outside(raw: bytes, values: Sequence[bytes]) -> bytes:
    """A body without these values, which stand in it one behind the other; all of it where that is not seen at once.

    They are whole values, so no name of the body's own fields goes with them.
    """
    if len(raw) > LONG_BYTES and (name := _MESSAGES.search(raw)):
        for comma in (b",", b", "):
            joined = comma.join(values)
            if raw.startswith(joined, name.end()):
                return raw[: name.end()] + raw[name.end() + len(joined) :]
    return raw


def present(raw: bytes, body: OpenAIBody, around: bytes | None = None) -> dict[str, bytes]:
    """The owned fields that the client sent, as raw JSON. Raises `InvalidRequest` if one was sent twice.

    `around` is the part of the body in which to look for that; None: all of it.
    """
    around = raw if around is None else around
    found = {"model": b""}
    if body.max_tokens is not UNSET:
        found["max_tokens"] = bytes(body.max_tokens)
    if body.max_completion_tokens is not UNSET:
        found["max_completion_tokens"] = bytes(body.max_completion_tokens)
    if body.stream_options is not UNSET:
        found["stream_options"] = bytes(body.stream_options)
    values = _seldom(body)
    if values != _NONE_SELDOM:
        given = zip(FORBIDDEN, values, strict=True)
        found |= {name: bytes(value) for name, value in given if value is not UNSET}
    if around.find(b"\\u00") >= 0 and _SPELLED_OUT.search(around):
        top_level(raw)
        return found
    for name in found:
        if around.count(_QUOTED[name]) > 1:
            top_level(raw)  # the name may stand deeper, in a tool's schema: only the walk can tell
            break
    return found


def wants_usage(body: OpenAIBody) -> bool:
    """Whether the client asked for the usage frame. Raises `InvalidRequest` for malformed options."""
    if body.stream_options is UNSET:
        return False
    try:
        options = _OPTIONS.decode(body.stream_options)
    except msgspec.ValidationError:
        raise InvalidRequest("`stream_options` must be an object.", param="stream_options") from None
    return bool(options and options.include_usage)


def limit_of(body: OpenAIBody, least: int = 1) -> int | None:
    """The client's limit on generated tokens, the first of `LIMIT_FIELDS` that has one; `None` if it gave none.

    Raises `InvalidRequest` for one below `least`.
    """
    first = None if body.max_completion_tokens is UNSET else _limit(LIMIT_FIELDS[0], body.max_completion_tokens, least)
    second = None if body.max_tokens is UNSET else _limit(LIMIT_FIELDS[1], body.max_tokens, least)
    return second if first is None else first


def _limit(name: str, raw: msgspec.Raw, least: int) -> int | None:
    try:
        value = _NUMBER.decode(raw)
    except msgspec.ValidationError:
        raise InvalidRequest(f"`{name}` must be a whole number.", param=name) from None
    if value is not None and value < least:
        raise InvalidRequest(f"`{name}` must be at least {least}, got {value}.", param=name)
    return value


def choices_of(body: OpenAIBody) -> int:
    """`n`, at least 1. Raises `InvalidRequest` outside 1 to `MAX_CHOICES`."""
    count = 1 if body.n is None else body.n
    if not 1 <= count <= MAX_CHOICES:
        raise InvalidRequest(f"`n` must be between 1 and {MAX_CHOICES}, got {count}.", param="n")
    return count


def hints_of(body: OpenAIBody) -> SessionHints:
    """What in the body may name a session."""
    if _hinted(body) == _NO_HINTS_GIVEN:
        return NO_HINTS
    metadata = body.metadata if isinstance(body.metadata, dict) else {}
    return SessionHints(
        session_id=_text(body.session_id),
        previous_response_id=_text(body.previous_response_id),
        conversation=_text(body.conversation),
        prompt_cache_key=_text(body.prompt_cache_key),
        metadata_session_id=_text(metadata.get("session_id")),
        metadata_user_id=_text(metadata.get("user_id")),
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
