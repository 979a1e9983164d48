"""The GPUs and models that a configuration may name: two YAML files beside this module.

Rule: every row names its source. A name or an alias finds a row, letter case aside.
"""

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import yaml

from budgets.geometry import Geometry
from budgets.hardware import Hardware

HERE = Path(__file__).parent


class ModelEntry(NamedTuple):
    """One model of the catalogue."""

    name: str
    geometry: Geometry
    source: str
    aliases: tuple[str, ...] = ()


class GpuEntry(NamedTuple):
    """One GPU of the catalogue; `measured` says where its efficiencies come from, None: the defaults."""

    name: str
    hardware: Hardware
    source: str
    measured: str | None = None
    aliases: tuple[str, ...] = ()


@lru_cache(maxsize=1)
def models() -> Mapping[str, ModelEntry]:
    """Every model by its name; `model` finds aliases too."""
    return MappingProxyType({name: _model(name, row) for name, row in _rows("models.yaml").items()})


@lru_cache(maxsize=1)
def gpu_entries() -> Mapping[str, GpuEntry]:
    """Every GPU with its sources by its name."""
    return MappingProxyType({name: _gpu(name, row) for name, row in _rows("gpus.yaml").items()})


@lru_cache(maxsize=1)
def gpus() -> Mapping[str, Hardware]:
    """Every GPU by its name; `gpu` finds aliases too."""
    return MappingProxyType({name: entry.hardware for name, entry in gpu_entries().items()})


def model(name: str) -> ModelEntry | None:
    """The row of this name or alias."""
    key = _names(models()).get(name.casefold())
    return models()[key] if key else None


def gpu(name: str) -> Hardware | None:
    """The GPU of this name or alias."""
    key = _names(gpu_entries()).get(name.casefold())
    return gpus()[key] if key else None


def _names(entries: Mapping[str, ModelEntry] | Mapping[str, GpuEntry]) -> dict[str, str]:
    return {alias.casefold(): name for name, entry in entries.items() for alias in (name, *entry.aliases)}


def _rows(file: str) -> dict[str, dict[str, object]]:
    rows: dict[str, dict[str, object]] = yaml.safe_load((HERE / file).read_text("utf-8"))
    return rows


def _model(name: str, row: Mapping[str, object]) -> ModelEntry:
    notes = {"source", "aliases"}
    geometry = Geometry.model_validate({key: value for key, value in row.items() if key not in notes})
    return ModelEntry(name, geometry, str(row["source"]), _aliases(row))


def _gpu(name: str, row: Mapping[str, object]) -> GpuEntry:
    notes = {"source", "aliases", "measured"}
    fields = {key: value for key, value in row.items() if key not in notes}
    hardware = Hardware.model_validate({"name": name, **fields})
    measured = row.get("measured")
    return GpuEntry(name, hardware, str(row["source"]), str(measured) if measured else None, _aliases(row))


def _aliases(row: Mapping[str, object]) -> tuple[str, ...]:
    aliases = row.get("aliases", ())
    assert isinstance(aliases, list | tuple)
    return tuple(str(alias) for alias in aliases)
