"""A YAML file as plain data, and the line of every place in it.

Rule: a key that stands twice in one mapping is an error, as is a file that is more than one document or no mapping.
"""

from collections.abc import Hashable, Iterator
from typing import Any

import yaml

from config.problems import ConfigError, Place, Problem


class _Loader(yaml.SafeLoader):
    """The safe loader, which also collects keys that stand twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.doubled: list[Problem] = []

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen:
                self.doubled.append(Problem("", f"{name!r} stands twice; remove one", key.start_mark.line + 1))
            seen.add(name)
        return super().construct_mapping(node, deep)


class Document:
    """The data of a file, and where it stands."""

    def __init__(self, text: str) -> None:
        """Raises `ConfigError` with line and column for text that is not one YAML mapping with single keys."""
        try:
            loader = _Loader(text)
            self._node = loader.get_single_node()
            self.data: Any = loader.construct_document(self._node) if self._node else None
        except yaml.YAMLError as fault:
            raise ConfigError([_unreadable(fault)]) from fault
        if loader.doubled:
            raise ConfigError(sorted(set(loader.doubled), key=lambda problem: problem.line or 0))
        if not isinstance(self.data, dict):
            raise ConfigError([Problem("", "expected a mapping with models, pools, tiers and tenants")])

    def line(self, place: Place) -> int:
        """The line (from 1) of a place, or of the nearest part above it that stands in the file."""
        node, line = self._node, 1
        for step in place:
            entry = next((value for key, at, value in _entries(node) if key == str(step)), None)
            if entry is None:
                break
            line = next(at for key, at, _ in _entries(node) if key == str(step))
            node = entry
        return line


def _entries(node: yaml.Node | None) -> Iterator[tuple[str, int, yaml.Node]]:
    """(key or index, line, node) of everything directly in a mapping or sequence."""
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), key.start_mark.line + 1, value) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from ((str(at), item.start_mark.line + 1, item) for at, item in enumerate(node.value))


def _unreadable(fault: yaml.YAMLError) -> Problem:
    mark = getattr(fault, "problem_mark", None)
    reason = getattr(fault, "problem", None) or str(fault)
    if mark is None:
        return Problem("", f"not YAML: {reason}")
    return Problem("", f"not YAML: {reason} (column {mark.column + 1})", mark.line + 1)
