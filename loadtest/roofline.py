"""How long a step takes on a named GPU, and how much KV cache fits beside the weights.

Rule: the emulated engine and a simulator ask here and nowhere else; the formulas are those of `budgets.cost`.
"""

from dataclasses import dataclass

from budgets.cost import kv_capacity_tokens, kv_read_bytes, prefill_flops, step_seconds, weight_read_bytes
from budgets.geometry import Geometry
from budgets.hardware import Hardware
from loadtest.scheduler import Step


@dataclass(frozen=True, slots=True)
class Roofline:
    """One model on one kind of GPU (or several of them in tensor parallel)."""

    geometry: Geometry
    hardware: Hardware

    def seconds(self, step: Step) -> float:
        """Predicted seconds of a step at the GPU's own speed."""
        contexts = step.decode_contexts
        return step_seconds(
            self.geometry,
            self.hardware,
            prefill=step.prefill,
            decode_context_tokens=sum(contexts),
            decode_sequences=len(contexts),
        )

    def read_bytes(self, step: Step) -> int:
        """Bytes read from one GPU's memory in a step: weights once, and the KV of every sequence that decodes."""
        contexts = step.decode_contexts
        kv = sum(kv_read_bytes(self.geometry, context, 1) for context in contexts)
        return (weight_read_bytes(self.geometry, step.tokens) + kv) // self.hardware.count

    def flops(self, step: Step) -> int:
        """Floating point operations of one GPU in a step."""
        work = sum(prefill_flops(self.geometry, context + new, context) for new, context in step.prefill)
        work += sum(prefill_flops(self.geometry, context + 1, context) for context in step.decode_contexts)
        return work // self.hardware.count

    def blocks(self, block_tokens: int, memory_share: float) -> int:
        """How many blocks of KV cache fit when the engine takes `memory_share` of the memory.

        Raises `ValueError` when the weights alone do not fit.
        """
        tokens = kv_capacity_tokens(self.geometry, self.hardware, memory_share)
        if tokens < block_tokens:
            raise ValueError(
                f"the weights ({self.geometry.weight_bytes() / 1e9:.0f} GB) leave no room for KV cache on "
                f"{self.hardware.count} x {self.hardware.name}; use more GPUs (--tensor-parallel-size) or a larger one"
            )
        return tokens // block_tokens

    def transfer_bytes(self, tokens: int) -> int:
        """Bytes of KV that move when another engine takes over a prompt of this many tokens."""
        return self.geometry.kept_bytes(tokens)
