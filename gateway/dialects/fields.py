"""Top-level fields of a JSON object, edited where they stand, so that every other byte leaves as it came.

Rule: a body is never re-encoded. A field that is set and was not sent goes in front; a field that was sent is replaced
or cut out at its own place; a field that is sent twice cannot be edited honestly and is refused.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from gateway.errors import InvalidRequest

_KEY = re.compile(rb'[ \t\r\n]*("(?:[^"\\]|\\.)*")[ \t\r\n]*:[ \t\r\n]*')
_NEXT = re.compile(rb"[ \t\r\n]*([,}])")
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


@dataclass(frozen=True, slots=True)
class Span:
    """Where a field stands: its key begins at `key`, its value is `body[start:stop]`."""

    key: int
    start: int
    stop: int


def top_level(body: bytes) -> dict[str, Span]:
    """The span of every top-level field of a JSON object that has been parsed once already.

    Raises `InvalidRequest` when a field occurs twice.
    """
    values = _OBJECT.decode(body)
    spans: dict[str, Span] = {}
    at = body.index(b"{") + 1
    while (match := _KEY.match(body, at)) is not None:
        name = msgspec.json.decode(match[1], type=str)
        stop = match.end() + len(bytes(values[name]))
        after = _NEXT.match(body, stop)
        if name in spans or after is None:
            raise InvalidRequest(f"The field `{name}` occurs more than once.", param=name)
        spans[name] = Span(match.start(1), match.end(), stop)
        at = after.end()
    return spans


def edited(body: bytes, fields: Mapping[str, bytes | None], present: Mapping[str, bytes]) -> bytes:
    """`body` with each of `fields` set to its raw JSON value, or removed for `None`. `present`: what the body has.

    Nothing to do gives the very same object.
    """
    touched, added = [], b""
    for name, value in fields.items():
        if name in present:
            touched.append(name)
        elif value is not None:
            added += b'"%b":%b,' % (name.encode(), value)
    if touched:
        body = _spliced(body, {name: fields[name] for name in touched})
    if not added:
        return body
    brace = body.index(b"{") + 1
    return b"".join((body[:brace], added, memoryview(body)[brace:]))


def _spliced(body: bytes, fields: Mapping[str, bytes | None]) -> bytes:
    spans = top_level(body)
    for name in sorted(fields, key=lambda field: spans[field].key, reverse=True):
        span, value = spans[name], fields[name]
        if value is None:
            body = _cut(body, span)
        elif body[span.start : span.stop] != value:
            body = b"".join((body[: span.start], value, body[span.stop :]))
    return body


def _cut(body: bytes, span: Span) -> bytes:
    """Without the field and one comma: the one behind it, or, for the last field, the one before."""
    after = _NEXT.match(body, span.stop)
    assert after is not None
    if after[1] == b",":
        return body[: span.key] + body[after.end() :].lstrip(b" \t\r\n")
    return body[: span.key].rstrip(b" \t\r\n").removesuffix(b",") + body[span.stop :]
