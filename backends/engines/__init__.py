"""The engines kvgate knows, one row a kind: metric names, owned fields, error texts."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from backends.engines.kind import Engine, EngineKind
from backends.engines.openai import OPENAI
from backends.engines.sglang import SGLANG
from backends.engines.tgi import TGI
from backends.engines.vllm import VLLM

ENGINES: Final[Mapping[EngineKind, Engine]] = MappingProxyType(
    {engine.kind: engine for engine in (VLLM, TGI, SGLANG, OPENAI)}
)
