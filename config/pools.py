"""Pools: replicas of one engine kind on one kind of hardware.

Rule: a replica is an origin (scheme, host, port) and nothing else; credentials are the pool's `engine_key`.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveInt,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from backends.engines import ENGINES
from backends.engines.kind import EngineKind
from budgets.hardware import Hardware
from config import catalogue
from config.problems import unknown
from config.secret import SECRET, EnvSecret
from config.section import ModelName, NamedSection, Section
from config.units import Money, plain_numbers

_NAME = re.compile(r"[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*\.?")
Phase = Literal["prefill", "decode", "any"]


def _origin(url: str) -> str:
    """`http://host:port`, without a trailing slash."""
    parts = urlsplit(url)
    if "@" in parts.netloc:
        raise PydanticCustomError(SECRET, "a URL carries no credentials; use the pool's engine_key: env:NAME")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("expected http://host:port or https://host:port")
    if parts.path not in ("", "/") or parts.query or parts.fragment:
        raise ValueError(f"expected no path; write {parts.scheme}://{parts.netloc}")
    if parts.port == 0:
        raise ValueError("port 0 is not a port")
    if not _is_host(parts.hostname):
        raise ValueError("expected a host: an IP address, or a name of letters, digits, - and _ with dots between")
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _is_host(name: str) -> bool:
    try:
        return bool(_NAME.fullmatch(name) or ipaddress.ip_address(name))
    except ValueError:
        return False


class Replica(Section):
    """One server. Its name, where none is given, is host:port."""

    url: Annotated[str, AfterValidator(_origin)]
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9_.:\[\]-]{1,128}$")] = ""

    @model_validator(mode="before")
    @classmethod
    def _from_url(cls, value: object) -> object:
        fields = {"url": value} if isinstance(value, str) else value
        if isinstance(fields, Mapping) and "name" not in fields and isinstance(fields.get("url"), str):
            return {**fields, "name": urlsplit(fields["url"]).netloc.rpartition("@")[2].lower()}
        return fields


class Features(Section):
    """What the engine was started with. None: what `usual_features` says of its kind."""

    priority: bool | None = Field(default=None, description="Priority scheduling is on.")
    prompt_tokens_details: bool | None = Field(default=None, description="It reports cached tokens.")
    cache_salt: bool | None = Field(default=None, description="It salts its prefix cache per request.")
    usage_in_stream: bool | None = Field(default=None, description="It honours stream_options.include_usage.")
    broken_arguments: bool | None = Field(
        default=None, description="It takes calls whose arguments are no JSON object."
    )
    cache_control: bool | None = Field(default=None, description="It leaves cache_control markers out of the prompt.")

    def filled(self, usual: "Features") -> "Features":
        """With the usual value in every place that is None."""
        return usual.model_copy(update=self.model_dump(exclude_none=True))


def usual_features(kind: EngineKind) -> Features:
    """What an engine of this kind understands. What it only does when started so is off until declared."""
    understands = ENGINES[kind].understands
    return Features(
        priority=False,
        prompt_tokens_details=False,
        cache_salt="cache_salt" in understands,
        usage_in_stream="stream_options.include_usage" in understands,
        broken_arguments=ENGINES[kind].takes_broken_arguments,
        cache_control=ENGINES[kind].takes_cache_control,
    )


def _hardware(value: object) -> object:
    if isinstance(value, str) and (found := catalogue.gpu(value)):
        return found
    if isinstance(value, str):
        raise ValueError(unknown("hardware", value, catalogue.gpus()))
    return plain_numbers(value)


HardwareRef = Annotated[
    Hardware,
    BeforeValidator(_hardware),
    WithJsonSchema(
        {
            "description": "A GPU of the catalogue, or one spelled out.",
            "anyOf": [{"type": "string"}, {"type": "object"}],
        }
    ),
]


class Pool(NamedSection):
    """Like replicas. `phase` says which requests they are for; `max_concurrent` bounds calls per replica.

    `price_per_gpu_hour` is for one GPU; None: time of this pool has no price.
    """

    engine: EngineKind = "vllm"
    phase: Phase = "any"
    models: Annotated[tuple[ModelName, ...], Field(min_length=1)]
    tensor_parallel: PositiveInt = 1
    hardware: HardwareRef
    price_per_gpu_hour_nanos: Money | None = Field(default=None, alias="price_per_gpu_hour")
    engine_key: EnvSecret | None = None
    max_concurrent: PositiveInt = 64
    features: Features = Field(default=Features(), validate_default=True)
    replicas: Annotated[tuple[Replica, ...], Field(min_length=1)]

    @field_validator("hardware")
    @classmethod
    def _in_parallel(cls, hardware: Hardware, info: ValidationInfo) -> Hardware:
        return hardware.scaled(info.data.get("tensor_parallel", 1))

    @field_validator("features")
    @classmethod
    def _usual_for_its_kind(cls, features: Features, info: ValidationInfo) -> Features:
        return features.filled(usual_features(info.data.get("engine", "vllm")))

    @model_validator(mode="after")
    def _distinct_replicas(self) -> Self:
        for field in ("url", "name"):
            values = [getattr(replica, field) for replica in self.replicas]
            if twice := next((value for value in values if values.count(value) > 1), None):
                raise ValueError(f"two replicas have the {field} {twice}; remove one")
        return self
