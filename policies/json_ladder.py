"""JSON made shorter, step by step, and still JSON.

Rule: keys stay, numbers keep their digits; arrays lose items from the middle and long strings lose theirs, each with a
marker that says how many. Step 0 only takes out white space. A step visits, and reads, only what it keeps.
"""

import json
from collections.abc import Iterator
from typing import NamedTuple, NoReturn

import msgspec

from policies.text_spans import boundary

Json = dict[str, "Json"] | list["Json"] | str | bool | None | msgspec.Raw
"""A value; `Raw` is one that is known to be JSON and was not read yet."""


class Number(str):
    """A number, or `true`, `false` or `null`, as it was written."""

    __slots__ = ()


LOST = "not recoverable"
"""What became of what is left out, unless it is kept elsewhere."""


class Step(NamedTuple):
    """Items kept of an array and characters kept of a string; `fate` is what is said of the rest."""

    items: int
    characters: int
    fate: str = LOST


def _not_json(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_decoded = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=_not_json).decode
"""Made once: to make a decoder takes longer than to read a short text."""

_ITEMS = (512, 256, 128, 96, 64, 48, 32, 24, 16, 12, 8, 6, 4, 3, 2)
UNBOUNDED = 1 << 62
LADDER = (Step(UNBOUNDED, UNBOUNDED), *(Step(items, 64 * items) for items in _ITEMS), Step(2, 40), Step(1, 24))
_encoded = json.JSONEncoder(ensure_ascii=False).encode
_quoted = json.encoder.encode_basestring

UNCUT_CHARACTERS = 64
"""A string is not cut for less than this: the marker is about as long."""
DEPTH = 32
"""Containers nested deeper are left out as a whole, so that no input can exhaust the stack."""


_RAW = msgspec.json.Decoder(msgspec.Raw)
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])
_TEXT = msgspec.json.Decoder(str)


def is_json(text: str) -> bool:
    """Whether `text` is JSON as `parse` takes it, told without reading it."""
    try:
        _RAW.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _is_parsed(text)
    return True


def is_object(text: str) -> bool:
    """Whether `text` is a JSON object, told without reading it."""
    return (text[:1] == "{" or text.lstrip()[:1] == "{") and is_json(text)


def parse(text: str) -> Json:
    """The value of `text`; `ValueError` where it is not JSON (NaN and Infinity are not) or nested beyond all reason.

    Lone surrogates, which the fast reader refuses, are read the slow way.
    """
    try:
        return _opened(bytes(_RAW.decode(text)))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return _parsed(text)


def _stays(data: bytes, step: Step, depth: int) -> bool:
    """Whether a value is so small that no part of it can be cut; without escapes it needs none read either."""
    if len(data) > step.characters + UNCUT_CHARACTERS or b"\\" in data:
        return False
    if len(data) > 2 * step.items and b"[" in data:
        return False
    return depth + data.count(b"[") + data.count(b"{") < DEPTH


def _opened(data: bytes) -> Json:
    """One level of a value."""
    match data[:1]:
        case b"{":
            return dict[str, Json](_OBJECT.decode(data))
        case b"[":
            return list[Json](_ARRAY.decode(data))
        case b'"':
            return _TEXT.decode(data)
        case _:
            return Number(data.decode())


def _is_parsed(text: str) -> bool:
    try:
        _parsed(text)
    except ValueError:
        return False
    return True


def _parsed(text: str) -> Json:
    try:
        value: Json = _decoded(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return value


def render(value: Json, level: int, fate: str = LOST) -> str:
    """`value` in its shortest JSON form, cut down to step `level` of the ladder."""
    sheet = _Sheet(LADDER[level]._replace(fate=fate), UNBOUNDED)
    sheet.write(value, 0)
    return "".join(sheet.pieces)


def is_longer(value: Json, level: int, characters: int) -> bool:
    """Whether `render` would give more than so many characters; it is not rendered further than that."""
    try:
        _Sheet(LADDER[level], characters).write(value, 0)
    except _Full:
        return True
    return False


class _Full(Exception):
    """More was written than there was room for."""


class _Sheet:
    """What is written of a value, piece by piece. Raises `_Full`."""

    __slots__ = ("_left", "_step", "pieces")

    def __init__(self, step: Step, characters: int) -> None:
        self._step = step
        self._left = characters
        self.pieces: list[str] = []

    def write(self, value: Json, depth: int) -> None:
        if isinstance(value, msgspec.Raw):
            data = bytes(value)
            if _stays(data, self._step, depth):
                self._add(msgspec.json.format(data, indent=-1).decode())
                return
            value = _opened(data)
        match value:
            case Number():
                self._add(value)
            case str():
                self._add(_quoted(_shortened(value, self._step)))
            case dict() | list() if value and depth >= DEPTH:
                self._add(_quoted(f"[kvgate: a nested part left out, {self._step.fate}]"))
            case dict():
                self._object(value, depth)
            case list():
                self._array(value, depth)
            case _:
                self._add(_encoded(value))

    def _object(self, value: dict[str, Json], depth: int) -> None:
        comma = "{"
        for key, item in value.items():
            self._add(f"{comma}{_quoted(key)}:")
            self.write(item, depth + 1)
            comma = ","
        self._add("}" if value else "{}")

    def _array(self, value: list[Json], depth: int) -> None:
        comma = "["
        for item in _kept(value, self._step):
            self._add(comma)
            self.write(item, depth + 1)
            comma = ","
        self._add("]" if value else "[]")

    def _add(self, piece: str) -> None:
        self.pieces.append(piece)
        self._left -= len(piece)
        if self._left < 0:
            raise _Full


def _kept(value: list[Json], step: Step) -> Iterator[Json]:
    items = step.items
    missing = len(value) - items
    if missing < 2:
        yield from value
        return
    head = items - (items + 1) // 3
    yield from value[:head]
    yield f"[kvgate: {missing} of {len(value)} items left out, {step.fate}]"
    yield from value[head + missing :]


def _shortened(value: str, step: Step) -> str:
    characters = step.characters
    if len(value) <= characters + UNCUT_CHARACTERS:
        return value
    start, stop = boundary(value, 2 * characters // 3), boundary(value, len(value) - characters // 3)
    return f"{value[:start]}[kvgate: {stop - start} characters left out, {step.fate}]{value[stop:]}"
