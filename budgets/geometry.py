"""The shape of a model, as far as it decides what a context costs: attention layers, recurrent state, parameters.

Rule: sizes are exact integers in bytes. Layers are described by what they keep per token, not by model family, so
that a new architecture is a new row of the catalogue and no new code.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveInt, model_validator

KvDtype = Literal["bf16", "fp8", "nvfp4"]
WeightDtype = Literal["fp32", "bf16", "fp8", "fp4"]

SIXTEEN_VALUES_BYTES: Mapping[KvDtype, int] = {"bf16": 32, "fp8": 16, "nvfp4": 9}
"""nvfp4 keeps one scale byte for each block of sixteen half-byte values."""

WEIGHT_BYTES: Mapping[WeightDtype, float] = {"fp32": 4.0, "bf16": 2.0, "fp8": 1.0, "fp4": 0.5625}


class Attention(BaseModel):
    """A group of like attention layers. Widths count values, windows count tokens.

    `latent_width` (multi-head latent attention: latent rank + rope width) replaces keys and values by one shared
    vector. `window_tokens` caps what is kept and read; `top_k_tokens` (sparse attention) caps only what is read, and
    `index_bytes` per token and layer are kept and read in full to choose those.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt = 1
    head_dim: PositiveInt
    value_dim: PositiveInt | None = None
    latent_width: PositiveInt | None = None
    window_tokens: PositiveInt | None = None
    top_k_tokens: PositiveInt | None = None
    index_bytes: int = Field(default=0, ge=0)

    @property
    def kept_values(self) -> int:
        """Values kept per token in one layer: keys and values of every KV head, or the shared latent vector."""
        return self.latent_width or self.kv_heads * self.score_width

    @property
    def score_width(self) -> int:
        """Width of the two products (query by key, weight by value) of one head."""
        return self.head_dim + (self.value_dim or self.head_dim)

    @property
    def read_cap_tokens(self) -> int | None:
        """How many tokens of the context one decode step reads at most; None: all."""
        caps = [cap for cap in (self.window_tokens, self.top_k_tokens) if cap is not None]
        return min(caps, default=None)

    def kv_bytes(self, dtype: KvDtype) -> int:
        """Bytes of keys and values per token in all layers of the group, the index of sparse attention aside."""
        return self.layers * -(-self.kept_values * SIXTEEN_VALUES_BYTES[dtype] // 16)

    def kept_tokens(self, context_tokens: int) -> int:
        """Tokens of a context whose KV is held."""
        return min(context_tokens, self.window_tokens or context_tokens)


class Recurrent(BaseModel):
    """A group of like layers with a state of fixed size (Mamba2, gated delta net): fp32 state, bf16 convolution."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    layers: PositiveInt
    heads: PositiveInt
    key_dim: PositiveInt
    value_dim: PositiveInt
    conv_width: int = Field(default=0, ge=0)
    conv_kernel: PositiveInt = 4

    @property
    def state_bytes(self) -> int:
        """Bytes per sequence in all layers of the group."""
        state = 4 * self.heads * self.key_dim * self.value_dim
        return self.layers * (state + 2 * self.conv_width * (self.conv_kernel - 1))


class Geometry(BaseModel):
    """One model: its layers, parameters and number formats.

    `input_embedding_params` counts an input embedding of its own (not tied to the output head): a step looks up rows
    of it and never reads it whole. `experts` and `experts_per_token` describe a mixture with uniform routing.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    attention: tuple[Attention, ...] = ()
    recurrent: tuple[Recurrent, ...] = ()
    hidden: PositiveInt
    total_params: PositiveInt
    active_params: PositiveInt
    input_embedding_params: int = Field(default=0, ge=0)
    experts: PositiveInt | None = None
    experts_per_token: PositiveInt | None = None
    kv_dtype: KvDtype = "bf16"
    weight_dtype: WeightDtype = "bf16"

    @model_validator(mode="before")
    @classmethod
    def _dense_is_all_active(cls, fields: object) -> object:
        if isinstance(fields, Mapping) and "active_params" not in fields:
            return {**fields, "active_params": fields.get("total_params", 1)}
        return fields

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if not self.attention and not self.recurrent:
            raise ValueError("a geometry needs at least one group of attention or recurrent layers")
        if self.active_params > self.total_params:
            raise ValueError(f"active_params {self.active_params} is above total_params {self.total_params}")
        if (self.experts is None) != (self.experts_per_token is None):
            raise ValueError("experts and experts_per_token go together")
        if self.active_params < self.total_params and self.experts is None:
            raise ValueError("active_params below total_params needs experts and experts_per_token")
        if (self.experts_per_token or 1) > (self.experts or 1):
            raise ValueError(f"experts_per_token {self.experts_per_token} is above experts {self.experts}")
        return self

    @cached_property
    def reads(self) -> tuple[tuple[int, int | None], ...]:
        """What one decode step reads for each token of the context: bytes, and up to how many tokens (None: all)."""
        groups = [(group.kv_bytes(self.kv_dtype), group.read_cap_tokens) for group in self.attention]
        indexes = [(group.layers * group.index_bytes, group.window_tokens) for group in self.attention]
        return tuple([(size, cap) for size, cap in (*groups, *indexes) if size])

    @cached_property
    def grows(self) -> tuple[tuple[int, int | None], ...]:
        """What a sequence keeps for each token of its context: bytes, and for how many tokens at most (None: all)."""
        groups = [(group.kv_bytes(self.kv_dtype), group.window_tokens) for group in self.attention]
        return (*groups, *((size, None) for size in [self._index_bytes] if size))

    @property
    def _index_bytes(self) -> int:
        return sum(group.layers * group.index_bytes for group in self.attention)

    @property
    def layers(self) -> int:
        """Attention and recurrent layers (feed-forward layers that stand alone are not counted)."""
        return sum(group.layers for group in self.attention) + sum(group.layers for group in self.recurrent)

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that every further token of a context adds for good: layers without a window, and their index."""
        return sum(
            group.kv_bytes(self.kv_dtype) + group.layers * group.index_bytes
            for group in self.attention
            if group.window_tokens is None
        )

    @cached_property
    def new_token_bytes(self) -> int:
        """Bytes that are written for every new token: keys, values and index of every attention layer."""
        return sum(size for size, _ in self.grows)

    @property
    def constant_bytes(self) -> int:
        """Bytes per sequence that do not grow: full windows and recurrent state."""
        return self.state_bytes + sum(
            group.kv_bytes(self.kv_dtype) * group.window_tokens
            for group in self.attention
            if group.window_tokens is not None
        )

    @cached_property
    def state_bytes(self) -> int:
        """Recurrent state of one sequence."""
        return sum(group.state_bytes for group in self.recurrent)

    @property
    def kv_heads(self) -> int:
        """How many ways the KV cache can be divided by tensor parallelism; 1 for a latent cache."""
        shards = [1 if group.latent_width else group.kv_heads for group in self.attention]
        return max(shards, default=1)

    def kept_bytes(self, context_tokens: int) -> int:
        """Bytes that a sequence with this context holds."""
        return self.state_bytes + sum(
            group.kv_bytes(self.kv_dtype) * group.kept_tokens(context_tokens)
            + group.layers * group.index_bytes * context_tokens
            for group in self.attention
        )

    def weight_bytes(self) -> int:
        """Bytes of all parameters in memory."""
        return round(self.total_params * WEIGHT_BYTES[self.weight_dtype])

    def with_dtypes(self, *, kv: KvDtype | None = None, weights: WeightDtype | None = None) -> "Geometry":
        """The same model with other number formats."""
        formats = {"kv_dtype": kv or self.kv_dtype, "weight_dtype": weights or self.weight_dtype}
        return Geometry.model_validate(self.model_dump() | formats)  # a copy would take what was worked out along
