"""What is wrong with a configuration, said so that it can be mended: the place, the value, the limit and the mend.

Rule: a value is shown only where no secret can stand; never for an unknown field.
"""

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from config.secret import SECRET

Place = tuple[str | int, ...]
SHOWN_CHARACTERS = 60
SILENT = frozenset({SECRET, "missing", "extra_forbidden", "union_tag_invalid", "union_tag_not_found"})
"""Errors whose message says all, or whose input must not be shown."""
STRUCTURES: Mapping[str, str] = {
    "model_type": "expected a mapping of fields",
    "dict_type": "expected a mapping",
    "mapping_type": "expected a mapping",
    "tuple_type": "expected a list",
}
"""Errors of shape. What stands there instead may be a key, so it is not shown either."""


class Problem(NamedTuple):
    """One thing to mend. `place` is a path such as `tiers.free.policies[0].max_tokens`; `line` counts from 1."""

    place: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        line = f"line {self.line}: " if self.line else ""
        return f"{line}{self.place}: {self.message}" if self.place else f"{line}{self.message}"


class ConfigError(ValueError):
    """A file that cannot be used, with everything that is wrong with it."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


def path(place: Place) -> str:
    """`("tiers", "free", "policies", 0)` as `tiers.free.policies[0]`."""
    text = "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in place)
    return text.removeprefix(".")


def from_pydantic(fault: ValidationError, data: object, root: type[BaseModel]) -> list[tuple[Place, str]]:
    """Every error of a failed validation of `data`, with its place in the file."""
    schema, errors = root.model_json_schema(), fault.errors()
    told = [error for error in errors if not _follows(error, errors)]
    return [(_in_file(error["loc"], error["type"], data), _message(error, schema)) for error in told]


def _follows(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """A list is called too short when its entries have mistakes: those are told, the rest is their consequence."""
    loc = error["loc"]
    deeper = (other["loc"] for other in errors if len(other["loc"]) > len(loc))
    return error["type"] == "too_short" and any(other[: len(loc)] == loc for other in deeper)


def _in_file(loc: Place, kind: str, data: object) -> Place:
    """The location without the steps that are pydantic's own (tags of unions, `[key]`)."""
    place: list[str | int] = []
    for at, step in enumerate(loc):
        inside = _step(data, step)
        if inside is None and not (kind == "missing" and at == len(loc) - 1):
            continue
        data = inside[0] if inside else None
        place.append(step)
    return tuple(place)


def _step(data: object, step: str | int) -> tuple[object] | None:
    """What is found one step down, in a tuple so that a null counts as found."""
    if isinstance(data, Mapping) and step in data:
        return (data[step],)
    if isinstance(data, list | tuple) and isinstance(step, int) and step < len(data):
        return (data[step],)
    return None


def _message(error: ErrorDetails, schema: Mapping[str, Any]) -> str:
    kind, loc, text = error["type"], error["loc"], error["msg"].removeprefix("Value error, ")
    if kind in STRUCTURES:
        return STRUCTURES[kind]
    if kind == "missing":
        return "this field is needed"
    if kind == "extra_forbidden":
        return _unknown_field(str(loc[-1]), _fields(schema, loc[:-1]))
    if kind == "union_tag_not_found":
        return "say which one it is: it needs a kind"
    if kind == "union_tag_invalid":
        tag, tags = error["ctx"]["tag"], [tag.strip(" '") for tag in error["ctx"]["expected_tags"].split(",")]
        return unknown("kind", str(tag), tags)
    text = text[:1].lower() + text[1:]
    return text if kind in SILENT else f"{text}{shown(error['input'], text)}"


def _unknown_field(name: str, fields: Sequence[str]) -> str:
    return f"unknown field{_near(name, fields)}"


def unknown(kind: str, name: str, known: Iterable[str]) -> str:
    """The message for a name that is none of the known ones."""
    return f"unknown {kind} {name!r}{_near(name, sorted(known)) or '; there is none'}"


def _near(name: str, known: Sequence[str]) -> str:
    """A suggestion to append to a message: the nearest name, else all of them."""
    if near := get_close_matches(name, known, n=1, cutoff=0.6):
        return f"; did you mean {near[0]!r}?"
    return f"; known here: {', '.join(sorted(known))}" if known else ""


def shown(value: object, message: str) -> str:
    """The value to append to a message, if it is a short scalar that the message does not name yet."""
    if value is None or isinstance(value, Mapping | list | tuple | BaseModel):
        return ""
    text = repr(value)
    said = isinstance(value, str) and text in message
    return f", not {text}" if len(text) <= SHOWN_CHARACTERS and not said else ""


def _fields(schema: Mapping[str, Any], loc: Place) -> list[str]:
    """Names of the fields that the JSON Schema allows at a location."""
    node: Mapping[str, Any] = schema
    for step in loc:
        node = _descend(_resolved(node, schema), step)
    node = _resolved(node, schema)
    return list(node.get("properties", {}))


def _resolved(node: Mapping[str, Any], schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow references; of an optional part, the part."""
    if "$ref" in node:
        return _resolved(schema["$defs"][node["$ref"].rpartition("/")[2]], schema)
    options = [option for option in node.get("anyOf", ()) if option.get("type") != "null"]
    return _resolved(options[0], schema) if len(options) == 1 else node


def _descend(node: Mapping[str, Any], step: str | int) -> Mapping[str, Any]:
    entries: dict[str, Any]
    if isinstance(step, int):
        entries = node.get("items", {})
    elif "discriminator" in node:
        reference = node["discriminator"]["mapping"].get(step)
        entries = {"$ref": reference} if reference else {}
    else:
        entries = node.get("properties", {}).get(step) or _any_entry(node)
    return entries


def _any_entry(node: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the values of a mapping whose keys are free."""
    schemas = [*node.get("patternProperties", {}).values(), node.get("additionalProperties")]
    return next((schema for schema in schemas if isinstance(schema, dict)), {})
