"""One recorded request, sent to vLLM and through the gateway, and what differs between the two answers.

Rule: what a model makes up is compared by shape (each key with its type, the frames of a stream); statuses and the
fields of errors are compared by value, words that people read only by whose they are.
"""

from collections.abc import Iterator, Mapping
from typing import Final

from tests.conformance.engine.recording import Message, frames_by_choice

Differences = dict[str, tuple[object, object]]
"""What differs: as vLLM has it, as the gateway has it; None is absent."""

VLLMS_WORDS: Final = "vLLM's words"
OUR_WORDS: Final = "kvgate's words"
FINGERPRINT: Final = "system_fingerprint"
"""vLLM puts it on the last frame of a stream that says anything else, whichever that is."""


def addressed(raw: bytes, model: bytes, key: bytes | None) -> bytes:
    """A recorded request for another model, with a tenant's key or none."""
    head, _, body = raw.partition(b"\r\n\r\n")
    body = body.replace(b'"tiny"', b'"%b"' % model)
    ours = (b"content-length:", b"authorization:")
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(ours)]
    if lines[0].startswith(b"POST"):
        lines.append(b"Content-Length: %d" % len(body))
    if key is not None:
        lines.append(b"Authorization: Bearer " + key)
    return b"\r\n".join([*lines, b"", b""]) + body


def differences(direct: Message, through: Message) -> Differences:
    """Empty if a client cannot tell the two apart. Bodies of answers with another status are not compared."""
    one, two = _aspects(direct), _aspects(through)
    if direct.status != through.status:
        one, two = _of_errors(one), _of_errors(two)
    found = {name: (one.get(name), two.get(name)) for name in one | two if one.get(name) != two.get(name)}
    if "error.message" in found:
        said, told = found["error.message"]
        found["error.message"] = (said and VLLMS_WORDS, told and OUR_WORDS)
    return found


def _aspects(message: Message) -> dict[str, object]:
    kind = message.headers.get("content-type", "")
    seen: dict[str, object] = {"status": message.status}
    if kind.startswith("text/event-stream"):
        events = message.events
        marked = any(isinstance(event, dict) and event.pop(FINGERPRINT, None) for event in events)
        return seen | {"content-type": kind, "frames": frames_by_choice(events), FINGERPRINT: marked or None}
    body = message.json
    error = body.get("error") if isinstance(body, dict) else None
    if isinstance(error, dict):
        return seen | {"content-type": kind} | {f"error.{name}": value for name, value in error.items()}
    return seen | {"content-type": kind} | dict(_paths("body", body))


def _of_errors(aspects: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in aspects.items() if name == "status" or name.startswith("error.")}


def _paths(path: str, value: object) -> Iterator[tuple[str, str]]:
    """Every key of a JSON value by its path, with the type of what stands there; items of a list are all one."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _paths(f"{path}.{key}", item)
    elif isinstance(value, list):
        for item in value:
            yield from _paths(f"{path}[]", item)
    else:
        yield path, type(value).__name__
