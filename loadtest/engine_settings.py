"""Everything that can be set about one emulated engine, under the names of vLLM's own flags where it has one.

Rule: a value that is left out takes the server's default; sizes that follow from the GPU and the model are computed
once, in `Plant`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from config import catalogue
from loadtest.roofline import Roofline
from loadtest.scheduler import Limits

Kind = Literal["vllm", "tgi"]
T = TypeVar("T")


class Settings(BaseModel):
    """One emulated engine. `speed` 20 means twenty times as fast as the GPU would be."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Kind = "vllm"
    host: str = "127.0.0.1"
    port: int = Field(default=0, ge=0, le=65535)
    model: str = "llama-3.1-8b"
    served_model_name: str | None = None
    gpu: str = "h100-sxm"
    tensor_parallel_size: int = Field(default=1, ge=1)
    speed: float = Field(default=1.0, gt=0)

    max_model_len: int = Field(default=32_768, ge=2)
    max_num_batched_tokens: int = Field(default=8192, ge=1)
    max_num_seqs: int = Field(default=256, ge=1)
    max_num_queued_reqs: int | None = Field(default=None, ge=1)
    block_size: int = Field(default=16, ge=1)
    num_gpu_blocks_override: int | None = Field(default=None, ge=1)
    gpu_memory_utilization: float = Field(default=0.9, gt=0, le=1)
    enable_prefix_caching: bool = True
    scheduling_policy: Literal["fcfs", "priority"] = "fcfs"

    api_key: str | None = None
    enable_prompt_tokens_details: bool = True
    enable_request_id_headers: bool = False
    enable_force_include_usage: bool = False
    refuse_stream_options: bool = False
    enable_mfu_metrics: bool = True
    enable_embeddings: bool = False
    kv_transfer: bool = True
    kv_load_failure_policy: Literal["fail", "recompute"] = "fail"
    kv_lease_seconds: float = Field(default=30.0, gt=0)
    kv_transfer_bytes_per_second: float = Field(default=36e9, gt=0)

    typical_output_tokens: int = Field(default=160, ge=2)
    seed: int = 0
    faults: tuple[str, ...] = ()
    shutdown_timeout_seconds: float = Field(default=0.0, ge=0)

    @model_validator(mode="after")
    def _one_sequence_fits(self) -> Self:
        if self.max_num_batched_tokens < self.max_num_seqs and self.max_num_batched_tokens < self.max_model_len:
            raise ValueError("max_num_batched_tokens must be at least max_num_seqs, or no full batch can decode")
        return self

    @property
    def served(self) -> str:
        """The name under which clients ask for the model."""
        return self.served_model_name or self.model


@dataclass(frozen=True, slots=True)
class Plant:
    """What a GPU and a model amount to: how fast steps are and how much fits."""

    roofline: Roofline
    limits: Limits

    @classmethod
    def build(cls, settings: Settings) -> "Plant":
        """Raises `ValueError`, in one line for the user, for an unknown name or sizes that do not fit."""
        roofline = Roofline(
            _found("model", settings.model, catalogue.model(settings.model), catalogue.models()).geometry,
            _found("GPU", settings.gpu, catalogue.gpu(settings.gpu), catalogue.gpus()).scaled(
                settings.tensor_parallel_size
            ),
        )
        limits = Limits(
            max_batched_tokens=settings.max_num_batched_tokens,
            max_sequences=settings.max_num_seqs,
            block_tokens=settings.block_size,
            blocks=settings.num_gpu_blocks_override
            or roofline.blocks(settings.block_size, settings.gpu_memory_utilization),
            prefix_caching=settings.enable_prefix_caching,
            by_priority=settings.scheduling_policy == "priority",
        )
        if limits.cache_tokens < settings.max_model_len:
            raise ValueError(
                f"max_model_len {settings.max_model_len} does not fit the KV cache of {limits.cache_tokens} tokens; "
                f"lower --max-model-len or raise --gpu-memory-utilization"
            )
        return cls(roofline, limits)


def _found(what: str, name: str, entry: T | None, known: Iterable[str]) -> T:
    if entry is None:
        raise ValueError(f"no {what} named {name!r} in the catalogue; known: {', '.join(sorted(known))}")
    return entry
