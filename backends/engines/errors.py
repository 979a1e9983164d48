"""An engine's error reply in one shape, and what it means for the replica and for the call.

The rule: a reply below 500 says something about the request and nothing about the replica, with two exceptions: it
is busy (429), or its kind reports its own failures there. A 503 in the engine's own words is an honest refusal; a
503 that is no JSON comes from something in between, or from a server that is going down. Messages may repeat what
the client sent: they go to the client and into no log.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from backends.breaker import Outcome
from backends.engines.kind import Engine

_LONGEST_PLAIN_CHARACTERS: Final = 300
_BUSY: Final = frozenset({408, 429})
_INVALID: Final = frozenset({400, 422})
_UNKNOWN_FIELD: Final = (
    "extra_forbidden",
    "extra inputs are not permitted",
    "unexpected field",
    "unknown field",
    "unrecognized field",
    "unrecognized request argument",
    "additional properties",
)
"""What validators say of a field that they do not know, in lower case: pydantic, OpenAI, serde, JSON schema."""
_TOO_LONG: Final = frozenset({400, 413, 422, 500})


@dataclass(frozen=True, slots=True)
class EngineError:
    """The parts of an OpenAI error; None: the engine does not say. `spoken`: the body was JSON of a known shape."""

    message: str
    type: str | None = None
    param: str | None = None
    code: str | int | None = None
    spoken: bool = True


@dataclass(frozen=True, slots=True)
class Classified:
    """What a reply means.

    outcome: for the breaker. retryable: another replica may well answer. busy: it refused for load.
    """

    outcome: Outcome
    retryable: bool = False
    busy: bool = False
    context_overflow: bool = False


def classify(engine: Engine, status: int, body: bytes) -> Classified:
    """What the reply `status` with `body` of an engine of this kind means."""
    if status < 400:
        return Classified("success")
    error = read_error(status, body)
    if status in _TOO_LONG and _overflows(engine, error):
        return Classified("neutral", context_overflow=True)
    if status in _BUSY or _contains(error.message, engine.busy_texts) or (status == 503 and error.spoken):
        return Classified("neutral", retryable=True, busy=True)
    if status == 501 or (status < 500 and status not in engine.faults):
        return Classified("neutral")
    return Classified("failure", retryable=True)


def may_refuse(field: str, status: int, body: bytes) -> bool:
    """Whether a reply may be a refusal of this one field: it names it, or a field that it does not know and not which.

    A body that only repeats what the client sent may name it too: sure is who asks again without the field.
    """
    if status not in _INVALID:
        return False
    if field.encode() in body:
        return True
    error = read_error(status, body)
    return error.param is None and _contains(f"{error.type} {error.message}", _UNKNOWN_FIELD)


def read_error(status: int, body: bytes) -> EngineError:
    """The error that `body` tells, whichever shape it has.

    OpenAI's object, a bare string (vLLM's 401, TGI), FastAPI's `detail`, SGLang's at top level, plain text, nothing.
    """
    try:
        decoded = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return EngineError(_plain(status, body), spoken=False)
    shape = decoded if isinstance(decoded, dict) else {}
    match shape.get("error"):
        case dict() as error:
            return _fields(status, error)
        case str() as message:
            return EngineError(_told(message) or _silent(status), type=_text(shape.get("error_type")))
    if "detail" in shape:
        return _detail(status, shape["detail"])
    return _fields(status, shape) if "message" in shape else EngineError(_silent(status), spoken=False)


def _fields(status: int, error: Mapping[str, object]) -> EngineError:
    code = error.get("code")
    return EngineError(
        message=_told(error.get("message")) or _silent(status),
        type=_text(error.get("type")),
        param=_text(error.get("param")),
        code=code if isinstance(code, str | int) and not isinstance(code, bool) else None,
    )


def _detail(status: int, detail: object) -> EngineError:
    """FastAPI: a string, or a list of `{loc, msg, type}`."""
    if isinstance(detail, list) and detail and isinstance(detail[0], dict):
        first = detail[0]
        return EngineError(
            _text(first.get("msg")) or _silent(status), _text(first.get("type")), _path(first.get("loc"))
        )
    return EngineError(_text(detail) or _silent(status))


def _path(loc: object) -> str | None:
    return ".".join(str(part) for part in loc) if isinstance(loc, list) else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _told(value: object) -> str | None:
    """A message without the piece of stack trace, paths included, that FastAPI adds to validation errors."""
    return (_text(value) or "").partition('\n  File "')[0].rstrip() or None


def _silent(status: int) -> str:
    return f"The engine answered {status} and gave no reason."


def _plain(status: int, body: bytes) -> str:
    """A line of plain text may be told; a page of HTML or a stack trace may not."""
    text = body.decode("utf-8", "replace").strip()
    tellable = text and len(text) <= _LONGEST_PLAIN_CHARACTERS and "<" not in text and "\n" not in text
    return text if tellable else _silent(status)


def _overflows(engine: Engine, error: EngineError) -> bool:
    marks = {error.type, error.param, error.code} & engine.overflow_marks
    return bool(marks) or _contains(error.message, engine.overflow_texts)


def _contains(message: str, texts: Sequence[str]) -> bool:
    lowered = message.lower()
    return any(text in lowered for text in texts)
