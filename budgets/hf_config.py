"""A geometry from a model's own config.json, in the form Hugging Face models ship it.

Rule: shapes come from `hf_layers`, parameter counts from `hf_params`; here they are put together.
"""

from collections import Counter

from budgets.geometry import Geometry
from budgets.hf_layers import STATEFUL, ConfigJson, attention, layer_kinds, need
from budgets.hf_params import attention_params, feed_forward_params, routed_experts, state_params


def geometry(config: ConfigJson) -> Geometry:
    """The geometry of a text model, or of the text part of a multimodal one.

    Raises `ValueError` that names the key which is missing or not understood.
    """
    config = config.get("text_config") or config
    kinds = Counter(layer_kinds(config))
    stateful = {kind: count for kind, count in kinds.items() if kind in STATEFUL}
    attending = {kind: count for kind, count in kinds.items() if kind not in STATEFUL}
    embedding = need(config, "vocab_size") * need(config, "hidden_size")
    tied = bool(config.get("tie_word_embeddings", True))
    fixed = embedding * (1 if tied else 2)
    fixed += sum(count * attention_params(config) for count in attending.values())
    fixed += sum(count * state_params(config, kind) for kind, count in stateful.items())
    feed_forward = list(feed_forward_params(config, kinds.total()))
    experts, per_token = routed_experts(config) or (None, None)
    return Geometry(
        attention=tuple(attention(config, kind, count) for kind, count in attending.items()),
        recurrent=tuple(STATEFUL[kind](config, count) for kind, count in stateful.items()),
        hidden=need(config, "hidden_size"),
        total_params=fixed + sum(total for total, _ in feed_forward),
        active_params=fixed + sum(active for _, active in feed_forward),
        input_embedding_params=0 if tied else embedding,
        experts=experts,
        experts_per_token=per_token,
    )
