"""What every part of the file has in common: frozen, no unknown fields, and names that are safe to print and store.

Rule: a field's name in the file is the name a person writes (`ttl: 30m`); the attribute ends with its unit.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, StringConstraints
from pydantic.json_schema import SkipJsonSchema

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
"""Name of a pool, tier, tenant or key. It goes into metric labels and store keys, hence the small alphabet."""

ModelName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.:/@+-]{0,127}$")]
"""Name of a model as clients write it."""

K = TypeVar("K")
V = TypeVar("V")


def _read_only(entries: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(entries))


ReadOnly = Annotated[Mapping[K, V], AfterValidator(_read_only)]
"""A mapping that nobody can change once it is validated."""


class Section(BaseModel):
    """Base of all parts of the file."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class NamedSection(Section):
    """A part that is named by its key in the file; `name` is filled in from there and not written."""

    name: SkipJsonSchema[str] = ""


def named(entries: object) -> object:
    """Give every entry of a mapping its key as name. An entry may be left empty: all defaults."""
    if not isinstance(entries, Mapping):
        return entries
    return {key: _with_name(key, {} if entry is None else entry) for key, entry in entries.items()}


def _with_name(key: object, entry: object) -> object:
    if not isinstance(entry, Mapping):
        return entry
    if "name" in entry and entry["name"] != key:
        return {**entry, "name (the key is the name)": entry["name"]}
    return {**entry, "name": key}
