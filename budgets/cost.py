"""What prompts and replies cost an engine: closed forms for bytes and FLOPs, and the roofline of a step for seconds.

Rule: bytes are exact integers that equal the sum over the single decode steps; seconds are predictions, for choosing,
simulating, and for what is charged by time of a GPU (`budgets.charge`).

Formulas, with L prompt tokens of which c cached, n generated, k KV bytes per token:
    kv_read        = k * (n*L + n*(n-1)/2), each layer group capped at its window
    kv_written     = k * (L-c + n), windows or not: what leaves a window was written too
    prefill_flops  = 2 * (active - input embedding) * (L-c) + 2 * heads * (key + value width) per attended pair
    weights_read   = (total - embedding - (total - active) * (1 - k/E)^(B-1)) * bytes, for B tokens routed to k of E
                     experts uniformly (the expected number of experts touched is E * (1 - (1 - k/E)^B))
    step           = max(linear FLOPs, weight read) + KV read + prefill attention + all-reduce + fixed cost
"""

from collections.abc import Sequence

from budgets.geometry import WEIGHT_BYTES, Geometry
from budgets.hardware import Hardware

ACTIVATION_BYTES = 3_000_000_000
"""What an engine keeps on each device beside weights and KV: activations, graphs, communication buffers."""


def kv_read_bytes(geometry: Geometry, prompt_tokens: int, decode_tokens: int) -> int:
    """KV bytes (recurrent state included) read while `decode_tokens` tokens are generated after the prompt."""
    return read_bytes_of(geometry.state_bytes, geometry.reads, prompt_tokens, decode_tokens)


def read_bytes_of(
    state_bytes: int, reads: Sequence[tuple[int, int | None]], prompt_tokens: int, decode_tokens: int
) -> int:
    """The same by what a geometry reads: bytes of a step whatever the context, and of each token in it up to a cap."""
    read = decode_tokens * state_bytes
    for size, cap in reads:
        read += size * capped_sum(prompt_tokens, decode_tokens, cap)
    return read


def kv_written_bytes(geometry: Geometry, prompt_tokens: int, cached_tokens: int, decode_tokens: int) -> int:
    """KV bytes written: those of each new token in every layer, and the recurrent state once a step.

    The prefill of a prompt that is not cached as a whole is one step, and so is every generated token.
    """
    prefilled = max(0, prompt_tokens - cached_tokens)
    steps = decode_tokens + (1 if prefilled else 0)
    return geometry.new_token_bytes * (prefilled + decode_tokens) + geometry.state_bytes * steps


def transfer_bytes(geometry: Geometry, context_tokens: int) -> int:
    """What another engine has to be sent to go on with a context: all that is kept of it, the state included."""
    return geometry.kept_bytes(context_tokens)


def capped_sum(first: int, count: int, cap: int | None = None) -> int:
    """The sum of `min(first + i, cap)` for i below `count`; None: no cap."""
    if count <= 0:
        return 0
    if cap is None or first + count <= cap:
        return count * first + count * (count - 1) // 2
    growing = min(count, max(0, cap - first))
    total = growing * first + growing * (growing - 1) // 2
    return total + (count - growing) * cap


def prefill_flops(geometry: Geometry, tokens: int, cached_tokens: int = 0) -> int:
    """FLOPs to prefill a prompt of `tokens`, the first `cached_tokens` of which the engine still holds."""
    new = max(0, tokens - cached_tokens)
    return linear_flops(geometry, new) + attention_flops(geometry, new, cached_tokens)


def linear_flops(geometry: Geometry, tokens: int) -> int:
    """FLOPs of everything but attention, for so many tokens."""
    return 2 * (geometry.active_params - geometry.input_embedding_params) * tokens


def decode_flops(geometry: Geometry, prompt_tokens: int, decode_tokens: int) -> int:
    """FLOPs to generate `decode_tokens` tokens after the prompt: each attends to all before it and to itself."""
    return linear_flops(geometry, decode_tokens) + attention_flops(geometry, decode_tokens, prompt_tokens)


def attention_flops(geometry: Geometry, new_tokens: int, context_tokens: int) -> int:
    """FLOPs of the attention products of `new_tokens` that follow `context_tokens`: every earlier token and itself."""
    return sum(flops * capped_sum(context_tokens + 1, new_tokens, cap) for flops, cap in pair_flops(geometry))


def pair_flops(geometry: Geometry) -> list[tuple[int, int | None]]:
    """FLOPs for each pair of a token and one that it attends to, and to how many it does at most (None: all)."""
    groups = geometry.attention
    return [(2 * group.layers * group.heads * group.score_width, group.read_cap_tokens) for group in groups]


def weight_read_bytes(geometry: Geometry, batch_tokens: float) -> int:
    """Weight bytes that one step over `batch_tokens` tokens reads: the expected number of experts, all else once."""
    if batch_tokens <= 0:
        return 0
    untouched = 0.0
    if geometry.experts and geometry.experts_per_token:
        rest = 1 - geometry.experts_per_token / geometry.experts
        untouched = (geometry.total_params - geometry.active_params) * rest ** (batch_tokens - 1)
    read = geometry.total_params - geometry.input_embedding_params - untouched
    return round(read * WEIGHT_BYTES[geometry.weight_dtype])


def read_bytes(
    geometry: Geometry, prompt_tokens: int, cached_tokens: int, decode_tokens: int, batch: float = 1.0
) -> int:
    """All bytes that a call makes an engine read: its KV, and its share of the weights in each of its steps.

    A decode step of `batch` sequences reads the weights once for all of them. The first token comes out of the
    prefill, which reads them once for as many tokens as it computes. Activations are not counted.
    """
    if decode_tokens <= 0:
        return 0
    prefill = weight_read_bytes(geometry, max(1, prompt_tokens - cached_tokens))
    share = weight_read_bytes(geometry, batch) / max(1.0, batch)
    return prefill + round(share * (decode_tokens - 1)) + kv_read_bytes(geometry, prompt_tokens, decode_tokens)


def kv_byte_seconds(geometry: Geometry, context_tokens: int, new_tokens: int, seconds: float) -> float:
    """KV bytes held times seconds, for a context that grows evenly by `new_tokens` during `seconds`."""
    if new_tokens <= 0:
        return geometry.kept_bytes(context_tokens) * seconds
    held = sum(size * capped_sum(context_tokens, new_tokens, window) for size, window in geometry.grows)
    return (geometry.state_bytes + held / new_tokens) * seconds


def kv_capacity_tokens(geometry: Geometry, hardware: Hardware, memory_share: float = 0.9) -> int:
    """Tokens of KV beside the weights when an engine takes `memory_share` of the memory; 0: weights do not fit.

    Windows are not counted: engines size their blocks by the layers that grow.
    """
    free = memory_share * hardware.total_memory_bytes - geometry.weight_bytes() - hardware.count * ACTIVATION_BYTES
    replicas = hardware.count / min(hardware.count, geometry.kv_heads)
    return max(0, int(free / (geometry.kv_bytes_per_token * replicas))) if geometry.kv_bytes_per_token else 0


def step_seconds(
    geometry: Geometry,
    hardware: Hardware,
    *,
    prefill: Sequence[tuple[int, int]],
    decode_context_tokens: int,
    decode_sequences: int,
) -> float:
    """Predicted seconds of one engine step.

    `prefill` lists (new tokens, context before them); `decode_sequences` sequences with `decode_context_tokens`
    tokens of context in sum each generate one token.
    """
    tokens = sum(new for new, _ in prefill) + decode_sequences
    if tokens == 0:
        return 0.0
    share = hardware.efficiencies
    peak = hardware.flops(geometry.weight_dtype)
    linear = linear_flops(geometry, tokens) / (peak * share.flops)
    weights = weight_read_bytes(geometry, tokens) / (hardware.total_memory_bytes_per_second * share.weight_read)
    attended = sum(attention_flops(geometry, new, context) for new, context in prefill)
    attention = attended / (hardware.count * hardware.bf16_flops * share.attention_flops)
    kv = _decode_read_seconds(geometry, hardware, decode_context_tokens, decode_sequences)
    fixed = share.step_seconds + share.sequence_seconds * (decode_sequences + len(prefill))
    return max(linear, weights) + kv + attention + _all_reduce_seconds(geometry, hardware, tokens) + fixed


def _decode_read_seconds(geometry: Geometry, hardware: Hardware, context_tokens: int, sequences: int) -> float:
    if sequences == 0:
        return 0.0
    return sequences * kv_read_bytes(geometry, context_tokens // sequences, 1) / kv_bytes_per_second(geometry, hardware)


def kv_bytes_per_second(geometry: Geometry, hardware: Hardware) -> float:
    """How fast KV is read. KV heads divide over the devices as far as they go; beyond that each one reads a copy."""
    ways = min(hardware.count, geometry.kv_heads)
    return ways * hardware.memory_bytes_per_second * hardware.efficiencies.kv_read


def _all_reduce_seconds(geometry: Geometry, hardware: Hardware, tokens: int) -> float:
    """Two reductions of the hidden state a layer."""
    if hardware.count == 1:
        return 0.0
    message_bytes = 2 * tokens * geometry.hidden
    once = hardware.all_reduce_latency_seconds + message_bytes / hardware.all_reduce_bytes_per_second
    return 2 * geometry.layers * once


def prefill_seconds(geometry: Geometry, hardware: Hardware, tokens: int, cached_tokens: int = 0) -> float:
    """Predicted seconds to prefill a prompt alone, in one step."""
    new = max(0, tokens - cached_tokens)
    return step_seconds(
        geometry, hardware, prefill=((new, cached_tokens),), decode_context_tokens=0, decode_sequences=0
    )


def decode_seconds(
    geometry: Geometry, hardware: Hardware, context_tokens: int, decode_tokens: int, batch: int = 1
) -> float:
    """Predicted seconds until `decode_tokens` tokens are generated among `batch` like sequences.

    A step's time is linear in the context (up to the caps), so one step at the middle stands for them all.
    """
    middle = context_tokens + max(0, decode_tokens - 1) // 2
    step = step_seconds(geometry, hardware, prefill=(), decode_context_tokens=batch * middle, decode_sequences=batch)
    return decode_tokens * step
