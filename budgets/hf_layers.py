"""What the layers of a config.json keep per token: the part of `hf_config` that reads shapes.

Rule: what cannot be derived is an error that names the missing key; nothing is guessed from the model's name.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from budgets.geometry import Attention, Recurrent

ConfigJson = Mapping[str, Any]

INDEX_SCALE_BYTES = 4
"""A sparse-attention index entry is fp8 values and one fp32 scale."""


def need(config: ConfigJson, *keys: str) -> int:
    """The first of these keys, a positive integer."""
    value = next((config[key] for key in keys if config.get(key) is not None), None)
    if value is None:
        raise ValueError(f"config.json has no {' or '.join(keys)}; spell the geometry out instead")
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"config.json: {keys[0]} must be a positive integer, not {value!r}")
    return value


_ATTENTION_KINDS = {"full_attention": "full", "attention": "full", "sliding_attention": "window"}
_RECURRENT_KINDS = {"linear_attention": "delta", "mamba": "mamba", "mamba2": "mamba"}
_USUAL_PERIODS = {"gemma2": 2, "gemma3": 6, "gemma3_text": 6}
"""One full layer in so many, where the key is left out because it has the value that is usual for the type."""

_PATTERN_LETTERS = {"M": "mamba", "*": "full", "-": "mlp", "E": "moe"}


def layer_kinds(config: ConfigJson) -> Iterator[str]:
    """`full`, `window`, `delta` or `mamba` for every layer that mixes tokens."""
    if pattern := config.get("hybrid_override_pattern"):
        yield from (kind for kind in pattern_kinds(pattern) if kind not in ("mlp", "moe"))
        return
    layers = need(config, "num_hidden_layers")
    if types := config.get("layer_types"):
        yield from (_kind(name) for name in types)
    elif period := config.get("sliding_window_pattern") or _USUAL_PERIODS.get(config.get("model_type", "")):
        yield from ("window" if (at + 1) % period else "full" for at in range(layers))
    elif period := config.get("full_attention_interval"):
        yield from ("delta" if (at + 1) % period else "full" for at in range(layers))
    else:
        yield from [_uniform_kind(config)] * layers


def pattern_kinds(pattern: str) -> list[str]:
    """The layers of a hybrid pattern; beside those that mix tokens, `mlp` and `moe`."""
    if odd := set(pattern) - set(_PATTERN_LETTERS):
        raise ValueError(f"config.json: hybrid_override_pattern has the unknown letter {min(odd)!r}")
    return [_PATTERN_LETTERS[letter] for letter in pattern]


def _kind(name: str) -> str:
    if kind := _ATTENTION_KINDS.get(name) or _RECURRENT_KINDS.get(name):
        return kind
    raise ValueError(f"config.json: layer_types has the unknown type {name!r}; spell the geometry out instead")


def _uniform_kind(config: ConfigJson) -> str:
    """Qwen ships a window that `use_sliding_window` turns off."""
    return "window" if config.get("sliding_window") and config.get("use_sliding_window", True) else "full"


def attention(config: ConfigJson, kind: str, layers: int) -> Attention:
    window = need(config, "sliding_window") if kind == "window" else None
    if config.get("kv_lora_rank"):
        return _latent(config, layers, window)
    return Attention(
        layers=layers,
        heads=need(config, "num_attention_heads"),
        kv_heads=kv_heads(config),
        head_dim=head_dim(config),
        window_tokens=window,
    )


def kv_heads(config: ConfigJson) -> int:
    """Heads that keep keys and values; without the key, every head does."""
    return need(config, "num_key_value_heads", "num_attention_heads")


def _latent(config: ConfigJson, layers: int, window: int | None) -> Attention:
    rope = need(config, "qk_rope_head_dim")
    top_k = config.get("index_topk")
    return Attention(
        layers=layers,
        heads=need(config, "num_attention_heads"),
        head_dim=need(config, "qk_nope_head_dim") + rope,
        value_dim=need(config, "v_head_dim"),
        latent_width=need(config, "kv_lora_rank") + rope,
        window_tokens=window,
        top_k_tokens=top_k,
        index_bytes=need(config, "index_head_dim") + INDEX_SCALE_BYTES if top_k else 0,
    )


def head_dim(config: ConfigJson) -> int:
    """Width of one head. Gemma's is not the hidden size over the heads, so there the key is needed."""
    if config.get("head_dim") or config.get("model_type") in _USUAL_PERIODS:
        return need(config, "head_dim")
    return need(config, "hidden_size") // need(config, "num_attention_heads")


def _delta(config: ConfigJson, layers: int) -> Recurrent:
    keys = need(config, "linear_num_key_heads") * need(config, "linear_key_head_dim")
    heads, value_dim = need(config, "linear_num_value_heads"), need(config, "linear_value_head_dim")
    return Recurrent(
        layers=layers,
        heads=heads,
        key_dim=need(config, "linear_key_head_dim"),
        value_dim=value_dim,
        conv_width=2 * keys + heads * value_dim,
        conv_kernel=config.get("linear_conv_kernel_dim", 4),
    )


def _mamba(config: ConfigJson, layers: int) -> Recurrent:
    heads, value_dim = need(config, "mamba_num_heads"), need(config, "mamba_head_dim")
    state = need(config, "ssm_state_size", "mamba_d_state")
    return Recurrent(
        layers=layers,
        heads=heads,
        key_dim=state,
        value_dim=value_dim,
        conv_width=heads * value_dim + 2 * need(config, "n_groups", "mamba_n_groups") * state,
        conv_kernel=config.get("conv_kernel", 4),
    )


STATEFUL: Mapping[str, Callable[[ConfigJson, int], Recurrent]] = {"delta": _delta, "mamba": _mamba}
