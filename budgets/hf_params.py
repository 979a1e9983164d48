"""How many parameters a config.json describes: the part of `hf_config` that counts.

Rule: matrices only. Biases and norms (well under 0.1 %) are left out.
"""

from collections.abc import Iterator

from budgets.hf_layers import STATEFUL, ConfigJson, head_dim, kv_heads, need, pattern_kinds


def attention_params(config: ConfigJson) -> int:
    """Parameters of one attention layer's projections."""
    if config.get("kv_lora_rank"):
        return _latent_params(config)
    return 2 * need(config, "hidden_size") * head_dim(config) * (need(config, "num_attention_heads") + kv_heads(config))


def _latent_params(config: ConfigJson) -> int:
    hidden, heads, latent = (need(config, key) for key in ("hidden_size", "num_attention_heads", "kv_lora_rank"))
    rope, nope, value = (need(config, key) for key in ("qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"))
    queries = heads * (nope + rope)
    if config.get("q_lora_rank"):
        rank = need(config, "q_lora_rank")
        query = rank * (hidden + queries)
    else:
        query = hidden * queries
    return query + hidden * (latent + rope) + latent * heads * (nope + value) + heads * value * hidden


def state_params(config: ConfigJson, kind: str) -> int:
    """Projections in (convolved part, gate, one or two scalars a head) and out."""
    state = STATEFUL[kind](config, 1)
    inner = state.heads * state.value_dim
    return need(config, "hidden_size") * (state.conv_width + 2 * inner + 2 * state.heads)


def routed_experts(config: ConfigJson) -> tuple[int, int] | None:
    """Routed experts and how many of them a token takes; None for a dense model."""
    names = ("n_routed_experts", "num_local_experts", "num_experts")
    if not any((config.get(name) or 0) > 1 for name in names):
        return None
    return need(config, *names), need(config, "num_experts_per_tok", "experts_per_token")


def feed_forward_params(config: ConfigJson, mixers: int) -> Iterator[tuple[int, int]]:
    """(total, active) parameters of every feed-forward layer; `mixers` layers mix tokens."""
    matrices, routed = 3, routed_experts(config)
    if pattern := config.get("hybrid_override_pattern"):
        # These models square a ReLU: two matrices and no gate. Feed-forward layers stand alone in the pattern.
        matrices = 2
        layers = [kind == "moe" for kind in pattern_kinds(pattern) if kind in ("mlp", "moe")]
    else:
        dense = config.get("first_k_dense_replace", 0) if routed else mixers
        layers = [at >= dense for at in range(mixers)]
    for mixed in layers:
        yield _mixture(config, matrices, *routed) if mixed and routed else _dense(config, matrices)


def _dense(config: ConfigJson, matrices: int) -> tuple[int, int]:
    params = matrices * need(config, "hidden_size") * need(config, "intermediate_size")
    return params, params


def _mixture(config: ConfigJson, matrices: int, count: int, per_token: int) -> tuple[int, int]:
    hidden = need(config, "hidden_size")
    width = need(config, "moe_intermediate_size", "intermediate_size")
    shared = (config.get("n_shared_experts") or 0) * (config.get("moe_shared_expert_intermediate_size") or width)
    shared += config.get("shared_expert_intermediate_size") or 0
    fixed = hidden * (matrices * shared + count)
    each = matrices * hidden * width
    return fixed + count * each, fixed + per_token * each
