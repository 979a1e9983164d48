"""Geometries from config.json files, in the shape that each family ships."""

import pytest

from budgets import hf_config
from budgets.hf_layers import ConfigJson
from config.catalogue import models

LLAMA_8B: ConfigJson = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "vocab_size": 128256,
    "tie_word_embeddings": False,
}
QWEN2_7B: ConfigJson = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "sliding_window": 131072,
    "use_sliding_window": False,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
MISTRAL_7B_V01: ConfigJson = {
    **LLAMA_8B,
    "model_type": "mistral",
    "sliding_window": 4096,
    "vocab_size": 32000,
}
MIXTRAL: ConfigJson = {
    **LLAMA_8B,
    "model_type": "mixtral",
    "sliding_window": None,
    "vocab_size": 32000,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
}
QWEN3_30B_A3B: ConfigJson = {
    "model_type": "qwen3_moe",
    "head_dim": 128,
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "sliding_window": None,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
DEEPSEEK_V3: ConfigJson = {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "first_k_dense_replace": 3,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "vocab_size": 129280,
    "tie_word_embeddings": False,
}
DEEPSEEK_V2_LITE: ConfigJson = {
    **DEEPSEEK_V3,
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 27,
    "first_k_dense_replace": 1,
    "num_attention_heads": 16,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "q_lora_rank": None,
    "vocab_size": 102400,
}
DEEPSEEK_V32: ConfigJson = {**DEEPSEEK_V3, "index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
GPT_OSS_20B: ConfigJson = {
    "model_type": "gpt_oss",
    "head_dim": 64,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "num_hidden_layers": 24,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "num_local_experts": 32,
    "experts_per_token": 4,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
    "sliding_window": 128,
    "vocab_size": 201088,
    "tie_word_embeddings": False,
}
GEMMA_3_27B: ConfigJson = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "head_dim": 128,
        "hidden_size": 5376,
        "intermediate_size": 21504,
        "num_hidden_layers": 62,
        "num_attention_heads": 32,
        "num_key_value_heads": 16,
        "sliding_window": 1024,
        "vocab_size": 262208,
    },
}
QWEN35_27B: ConfigJson = {
    "text_config": {
        "head_dim": 256,
        "hidden_size": 5120,
        "intermediate_size": 17408,
        "num_hidden_layers": 64,
        "num_attention_heads": 24,
        "num_key_value_heads": 4,
        "full_attention_interval": 4,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 48,
        "linear_key_head_dim": 128,
        "linear_value_head_dim": 128,
        "linear_conv_kernel_dim": 4,
        "vocab_size": 248320,
        "tie_word_embeddings": False,
    }
}
NEMOTRON_NANO: ConfigJson = {
    "model_type": "nemotron_h",
    "head_dim": 128,
    "hidden_size": 2688,
    "intermediate_size": 1856,
    "moe_intermediate_size": 1856,
    "moe_shared_expert_intermediate_size": 3712,
    "n_routed_experts": 128,
    "n_shared_experts": 1,
    "num_experts_per_tok": 6,
    "num_hidden_layers": 52,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "mamba_num_heads": 64,
    "mamba_head_dim": 64,
    "ssm_state_size": 128,
    "n_groups": 8,
    "conv_kernel": 4,
    "hybrid_override_pattern": "MEMEM*" + "EMEMEM*" * 5 + "EMEMEMEM" + "EME",
    "vocab_size": 131072,
    "tie_word_embeddings": False,
}
SMOLLM2: ConfigJson = {
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "vocab_size": 49152,
    "tie_word_embeddings": True,
}


@pytest.mark.parametrize(
    ("config", "row"),
    [
        (LLAMA_8B, "llama-3.1-8b"),
        (QWEN2_7B, "qwen2.5-7b"),
        (MISTRAL_7B_V01, "mistral-7b-v0.1"),
        (MIXTRAL, "mixtral-8x7b"),
        (QWEN3_30B_A3B, "qwen3-30b-a3b"),
        (DEEPSEEK_V3, "deepseek-v3"),
        (DEEPSEEK_V32, "deepseek-v3.2"),
        (GPT_OSS_20B, "gpt-oss-20b"),
        (GEMMA_3_27B, "gemma-3-27b"),
        (QWEN35_27B, "qwen3.5-27b"),
        (SMOLLM2, "smollm2-135m"),
    ],
)
def test_a_config_gives_what_the_catalogue_says(config: ConfigJson, row: str) -> None:
    read, listed = hf_config.geometry(config), models()[row].geometry
    assert read.kv_bytes_per_token == listed.kv_bytes_per_token
    assert read.constant_bytes == listed.constant_bytes
    assert read.hidden == listed.hidden
    assert (read.experts, read.experts_per_token) == (listed.experts, listed.experts_per_token)
    assert sorted(map(repr, read.attention)) == sorted(map(repr, listed.attention))
    assert read.recurrent == listed.recurrent


@pytest.mark.parametrize(
    ("config", "total", "active"),
    [
        (LLAMA_8B, 8.03e9, 8.03e9),
        (QWEN2_7B, 7.62e9, 7.62e9),
        (MIXTRAL, 46.7e9, 12.9e9),
        (QWEN3_30B_A3B, 30.5e9, 3.35e9),
        (DEEPSEEK_V3, 671e9, 37.6e9),
        (DEEPSEEK_V2_LITE, 15.7e9, 2.66e9),
        (QWEN35_27B, 26.4e9, 26.4e9),
        (GPT_OSS_20B, 20.9e9, 4.19e9),  # its maker counts no embedding as active: 3.6
        (GEMMA_3_27B, 27.0e9, 27.0e9),
        (SMOLLM2, 134.5e6, 134.5e6),
    ],
)
def test_parameters_are_counted_to_a_percent(config: ConfigJson, total: float, active: float) -> None:
    geometry = hf_config.geometry(config)
    assert geometry.total_params == pytest.approx(total, rel=0.01)
    assert geometry.active_params == pytest.approx(active, rel=0.01)


def test_a_hybrid_pattern_of_letters() -> None:
    geometry = hf_config.geometry(NEMOTRON_NANO)
    assert [group.layers for group in geometry.attention] == [NEMOTRON_NANO["hybrid_override_pattern"].count("*")]
    assert geometry.kv_bytes_per_token == models()["nemotron-3-nano-30b-a3b"].geometry.kv_bytes_per_token
    assert geometry.recurrent == models()["nemotron-3-nano-30b-a3b"].geometry.recurrent
    assert geometry.total_params == pytest.approx(31.6e9, rel=0.02)


def test_a_tied_embedding_is_counted_once_and_read() -> None:
    tied, untied = (hf_config.geometry({**LLAMA_8B, "tie_word_embeddings": value}) for value in (True, False))
    assert untied.total_params - tied.total_params == untied.input_embedding_params == 128256 * 4096
    assert tied.input_embedding_params == 0


def test_a_pattern_of_windows() -> None:
    config = {**LLAMA_8B, "sliding_window": 512, "sliding_window_pattern": 4}
    by_window = {group.window_tokens: group.layers for group in hf_config.geometry(config).attention}
    assert by_window == {512: 24, None: 8}


@pytest.mark.parametrize("key", ["hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size"])
def test_a_missing_key_is_named(key: str) -> None:
    with pytest.raises(ValueError, match=f"has no {key}"):
        hf_config.geometry({name: value for name, value in LLAMA_8B.items() if name != key})


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({**LLAMA_8B, "layer_types": ["chunked_attention"] * 32}, "unknown type 'chunked_attention'"),
        ({**LLAMA_8B, "hidden_size": "wide"}, "hidden_size must be a positive integer"),
        ({**LLAMA_8B, "hidden_size": True}, "hidden_size must be a positive integer"),
        ({**NEMOTRON_NANO, "hybrid_override_pattern": "MX"}, "unknown letter 'X'"),
        ({**LLAMA_8B, "model_type": "gemma2", "sliding_window": 4096}, "has no head_dim"),
        ({**GPT_OSS_20B, "sliding_window": None}, "has no sliding_window"),
        ({**MIXTRAL, "num_experts_per_tok": None}, "has no num_experts_per_tok"),
        ({**DEEPSEEK_V3, "v_head_dim": None}, "has no v_head_dim"),
    ],
)
def test_what_cannot_be_derived_is_named(config: ConfigJson, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        hf_config.geometry(config)
