"""Measurements as lines of JSON: one run, one file, one line a measurement.

Rule: a line holds all that the load generator said, so that a table can be made again without measuring again.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from pydantic import BaseModel, ConfigDict

from bench.gateways import BENCH

FILE: Final = BENCH / "out" / "results.jsonl"


class Measurement(BaseModel):
    """One run of the load generator. `figures` is empty where it failed, and `trouble` says why."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    round: int
    gateway: str
    scenario: str
    figures: Mapping[str, float] = {}
    trouble: str = ""


def append(measurement: Measurement, file: Path = FILE) -> None:
    with file.open("a") as lines:
        lines.write(measurement.model_dump_json() + "\n")


def read(file: Path = FILE) -> list[Measurement]:
    """Every line of a file. Raises `OSError` or `ValueError`."""
    return [Measurement.model_validate_json(line) for line in file.read_text().splitlines()]
