"""What a GPU can do: peak rates as its maker states them, and the share of each that engines reach.

Rule: peaks are dense (no sparsity) and per device; efficiencies are measured where the catalogue says so, else the
defaults below, which are good to about a quarter of a step's time. Several devices are one Hardware with `count`.
"""

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from budgets.geometry import WeightDtype


class Efficiencies(BaseModel):
    """Shares of the peak that a step reaches, and its fixed costs.

    Linear layers reach `flops` and `weight_read`; attention reaches `attention_flops` in prefill and `kv_read` in
    decode. A step costs `step_seconds` and each sequence in it `sequence_seconds` on top.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    flops: float = Field(default=0.75, gt=0, le=1)
    attention_flops: float = Field(default=0.5, gt=0, le=1)
    weight_read: float = Field(default=0.8, gt=0, le=1)
    kv_read: float = Field(default=0.8, gt=0, le=1)
    step_seconds: float = Field(default=0.0003, ge=0)
    sequence_seconds: float = Field(default=0.000002, ge=0)


class Hardware(BaseModel):
    """One kind of GPU, `count` of them in tensor parallel. Rates are per device: FLOP/s, bytes/s, bytes.

    `link_bytes_per_second` and `network_bytes_per_second` are one way, within and between nodes; `all_reduce_*` is
    what a collective reaches over the inner link.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    bf16_flops: PositiveFloat
    fp8_flops: PositiveFloat | None = None
    fp4_flops: PositiveFloat | None = None
    memory_bytes: PositiveInt
    memory_bytes_per_second: PositiveFloat
    link_bytes_per_second: PositiveFloat | None = None
    network_bytes_per_second: PositiveFloat | None = None
    all_reduce_bytes_per_second: PositiveFloat = 14e9
    all_reduce_latency_seconds: float = Field(default=0.00001, ge=0)
    efficiencies: Efficiencies = Efficiencies()
    count: PositiveInt = 1

    def scaled(self, count: int) -> "Hardware":
        """`count` devices in tensor parallel instead of the present number."""
        if count < 1:
            raise ValueError(f"a tensor parallel count is 1 or more, not {count}")
        return self.model_copy(update={"count": count})

    def flops(self, dtype: WeightDtype) -> float:
        """Peak FLOP/s of all devices for weights of this format; the next wider format where it has none."""
        per_device = self.bf16_flops
        if dtype in ("fp8", "fp4"):
            per_device = self.fp8_flops or per_device
        if dtype == "fp4":
            per_device = self.fp4_flops or per_device
        return self.count * per_device

    @property
    def total_memory_bytes(self) -> int:
        return self.count * self.memory_bytes

    @property
    def total_memory_bytes_per_second(self) -> float:
        return self.count * self.memory_bytes_per_second
