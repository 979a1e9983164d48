"""Errors as vLLM writes them: `{"error": {message, type, param, code}}`, the code an integer.

Rule: every refusal of a request is one `WireError`, raised where it is found and written down in one
place. The wording follows recorded replies of vLLM 0.32, because clients match on it.
"""

import json
from collections.abc import Mapping, Sequence

from pydantic_core import ErrorDetails

SHOWN_ERRORS = 10
SHOWN_CHARACTERS = 200


class WireError(Exception):
    """A refusal before the first byte: its status and its body."""

    def __init__(self, status: int, body: object) -> None:
        super().__init__(status)
        self.status = status
        self.body = body


def refusal(status: int, kind: str, message: str, param: str | None = None) -> WireError:
    """A refusal in vLLM's own form."""
    return WireError(status, {"error": {"message": message, "type": kind, "param": param, "code": status}})


def invalid(message: str, param: str | None = None, value: object = None) -> WireError:
    """A value that the engine does not take; parameter and value are named at the end of the message."""
    if param is not None:
        message += f" (parameter={param})" if value is None else f" (parameter={param}, value={value})"
    return refusal(400, "BadRequestError", message, param)


def unknown_model(name: object, served: str) -> WireError:
    message = f"The model `{name}` does not exist. Valid aliases: {served}."
    return refusal(404, "NotFoundError", message, "model")


def unexpected_field(name: str) -> WireError:
    """As `transformers serve` 5.19 says it of fields that it does not know; vLLM takes them all."""
    return WireError(422, {"detail": f"Unexpected fields in the request: {{'{name}'}}"})


def busy() -> WireError:
    message = (
        "The engine is currently busy and cannot accept new requests. "
        "Please try again later or on a different instance."
    )
    return refusal(503, "Service Unavailable", message)


def failed(status: int = 500) -> WireError:
    return refusal(status, "InternalServerError", "Internal server error")


def unsupported_media_type() -> WireError:
    return _bad_request("1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", None)


def empty_body() -> WireError:
    return malformed([{"type": "missing", "loc": (), "msg": "Field required", "input": None}])


def bad_json(error: json.JSONDecodeError) -> WireError:
    fault: ErrorDetails = {
        "type": "json_invalid",
        "loc": (error.pos,),
        "msg": "JSON decode error",
        "input": {},
        "ctx": {"error": error.msg},
    }
    return malformed([fault])


def malformed(errors: Sequence[ErrorDetails]) -> WireError:
    """A body that does not fit the schema, by the errors that pydantic found."""
    count = f"{len(errors)} validation error{'s' if len(errors) > 1 else ''}"
    lines = [f"  {_shown(error)}" for error in errors[:SHOWN_ERRORS]]
    return _bad_request("\n".join([f"{count}:", *lines]), _location(errors[0]))


def _bad_request(message: str, param: str | None) -> WireError:
    return refusal(400, "Bad Request", message, param)


def _location(error: ErrorDetails) -> str:
    return ".".join(["body", *map(str, error["loc"])])


def _shown(error: ErrorDetails) -> dict[str, object]:
    shown: dict[str, object] = {
        "type": error["type"],
        "loc": _location(error),
        "msg": error["msg"],
        "input": _shortened(error["input"]),
    }
    if "ctx" in error:
        shown["ctx"] = error["ctx"]
    return shown


def _shortened(value: object) -> str:
    if isinstance(value, Mapping | list):
        return f"<{type(value).__name__} of {len(value)} items>"
    return str(value)[:SHOWN_CHARACTERS]
