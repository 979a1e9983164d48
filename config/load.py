"""From a file to a checked `Config`, or to everything that is wrong with it.

Rule: one run names all problems. Parts with mistakes of their own are set aside, the rest is cross-checked without
them, and nothing is said about a part only because another one is broken.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from config import name_checks, number_checks, price_checks, soft_checks, summary_checks
from config.document import Document
from config.model import Config
from config.problems import ConfigError, Place, Problem, from_pydantic, path

SECTIONS = ("models", "pools", "tiers", "organisations", "tenants")

Found = list[tuple[Place, str]]


def load(file: str | Path) -> Config:
    """The configuration in a file. Raises `ConfigError` with every problem, each with its line."""
    file = Path(file)
    try:
        text = file.read_text("utf-8")
    except OSError as fault:
        raise ConfigError([Problem("", f"{file}: {fault.strerror or fault}")]) from fault
    except UnicodeDecodeError as fault:
        raise ConfigError([Problem("", f"{file} is not UTF-8 text (byte {fault.start})")]) from fault
    return parse(text, file.parent)


def parse(text: str, folder: Path = Path()) -> Config:
    """The configuration in YAML text; relative paths in it start from `folder`. Raises `ConfigError`."""
    document = Document(text)
    config, found = _build(document.data, folder)
    problems = [Problem(path(place), message, document.line(place)) for place, message in found]
    if problems or config is None:
        raise ConfigError(sorted(problems, key=lambda problem: problem.line or 0))
    return config


def schema() -> dict[str, Any]:
    """JSON Schema of the file, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Config.model_json_schema()}


def _build(data: Mapping[str, Any], folder: Path) -> tuple[Config | None, Found]:
    """The configuration as far as it is right, and what is wrong."""
    config, found = _validate(data, folder)
    if config is None:
        config, _ = _validate(_without(data, {place[:2] for place, _ in found}), folder)
    if config is not None:
        declared = {section: _keys(data.get(section)) for section in SECTIONS}
        found += name_checks.problems(config, declared)
        found += number_checks.problems(config)
        found += soft_checks.problems(config, declared["pools"])
        found += summary_checks.problems(config, declared)
        if not found:
            found += price_checks.problems(config, declared)
    return config, found


def _validate(data: Mapping[str, Any], folder: Path) -> tuple[Config | None, Found]:
    try:
        return Config.model_validate(data, context={"folder": folder}), []
    except ValidationError as fault:
        return None, from_pydantic(fault, data, Config)


def _without(data: Mapping[str, Any], places: set[Place]) -> dict[str, Any]:
    """The data less the entries with mistakes; a section that is wrong as a whole becomes an empty one."""
    rest: dict[str, Any] = {section: {} for section in SECTIONS}
    for section, entries in data.items():
        if section in SECTIONS and isinstance(entries, Mapping) and (section,) not in places:
            rest[section] = {name: entry for name, entry in entries.items() if (section, name) not in places}
    return rest


def _keys(section: object) -> frozenset[str]:
    return frozenset(map(str, section)) if isinstance(section, Mapping) else frozenset()
