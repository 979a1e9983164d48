"""Every row of the catalogues against the published table of KV bytes per token and state per sequence (bf16)."""

import pytest

from budgets.cost import decode_seconds, kv_capacity_tokens, prefill_seconds
from budgets.geometry import WeightDtype
from config.catalogue import gpu, gpu_entries, gpus, model, models

KIB, MIB, GIB = 1024, 1024**2, 1024**3

EXACT_KIB_PER_TOKEN = {
    "llama-3.1-8b": 128,
    "llama-3.1-70b": 320,
    "llama-3.1-405b": 504,
    "qwen2.5-7b": 56,
    "qwen2.5-72b": 320,
    "qwen3-0.6b": 112,
    "qwen3-8b": 144,
    "qwen3-32b": 256,
    "qwen3-30b-a3b": 96,
    "qwen3-235b-a22b": 188,
    "qwen3-coder-480b-a35b": 248,
    "qwen3.5-27b": 64,
    "qwen3.5-35b-a3b": 20,
    "qwen3.5-397b-a17b": 30,
    "mistral-7b-v0.3": 128,
    "mistral-7b-v0.1": 0,  # windows only
    "mistral-small-24b": 160,
    "mixtral-8x7b": 128,
    "gpt-oss-20b": 24,
    "gpt-oss-120b": 36,
    "gemma-3-27b": 80,
    "gemma-3-12b": 64,
    "gemma-4-26b-a4b": 20,  # the table says 10-20: full layers may keep keys and values as one
    "minimax-m2.5": 248,
    "nemotron-3-nano-30b-a3b": 6,
    "nemotron-h-56b": 40,
    "smollm2-135m": 22.5,  # 30 layers x 2 x 3 heads x 64 x 2 bytes
    "qwen2-tiny": 0.5,  # 2 layers x 2 x 1 head x 64 x 2 bytes
}
ROUNDED_KIB_PER_TOKEN = {"deepseek-v3": 68.6, "deepseek-v3.2": 68.6 + 7.9, "kimi-k2": 68.6}
GLM_5_LATENT_KIB = 87.8

EXACT_CONSTANT_MIB = {
    "mistral-7b-v0.1": 512,  # 4,096 tokens x 128 KiB
    "gpt-oss-20b": 3,
    "gpt-oss-120b": 4.5,
    "gemma-3-27b": 416,
    "gemma-3-12b": 320,
    "gemma-4-26b-a4b": 200,
}
ROUNDED_CONSTANT_MIB = {
    "qwen3.5-27b": 147,
    "qwen3.5-35b-a3b": 61,
    "qwen3.5-397b-a17b": 183,
    "nemotron-3-nano-30b-a3b": 47,
    "nemotron-h-56b": 870,
}

GIB_AT_32K = {
    "llama-3.1-8b": "4.0",
    "llama-3.1-70b": "10.0",
    "llama-3.1-405b": "15.75",
    "qwen2.5-7b": "1.75",
    "qwen2.5-72b": "10",
    "qwen3-0.6b": "3.5",
    "qwen3-8b": "4.5",
    "qwen3-32b": "8",
    "qwen3-30b-a3b": "3",
    "qwen3-235b-a22b": "5.9",
    "qwen3-coder-480b-a35b": "7.75",
    "qwen3.5-27b": "2.1",
    "qwen3.5-35b-a3b": "0.68",  # the table says 0.69; 20 KiB x 32 Ki + 61.4 MiB is 0.685
    "qwen3.5-397b-a17b": "1.1",
    "mistral-7b-v0.3": "4",
    "mistral-small-24b": "5",
    "mixtral-8x7b": "4",
    "deepseek-v3": "2.1",
    "deepseek-v3.2": "2.4",
    "kimi-k2": "2.1",
    "gpt-oss-20b": "0.75",
    "gpt-oss-120b": "1.1",
    "gemma-3-27b": "2.9",
    "gemma-3-12b": "2.3",
    "gemma-4-26b-a4b": "0.8",
    "minimax-m2.5": "7.75",
    "nemotron-3-nano-30b-a3b": "0.23",
    "nemotron-h-56b": "2.1",
}


@pytest.mark.parametrize(("name", "kib"), EXACT_KIB_PER_TOKEN.items())
def test_kv_bytes_per_token_exactly(name: str, kib: float) -> None:
    assert models()[name].geometry.kv_bytes_per_token == kib * KIB


@pytest.mark.parametrize(("name", "kib"), ROUNDED_KIB_PER_TOKEN.items())
def test_kv_bytes_per_token_where_the_table_is_rounded(name: str, kib: float) -> None:
    assert models()[name].geometry.kv_bytes_per_token / KIB == pytest.approx(kib, abs=0.05)


def test_sparse_attention_adds_an_index_to_the_latent() -> None:
    (group,) = models()["glm-5"].geometry.attention
    assert group.kv_bytes("bf16") / KIB == pytest.approx(GLM_5_LATENT_KIB, abs=0.05)
    assert models()["glm-5"].geometry.kv_bytes_per_token == group.kv_bytes("bf16") + 78 * 132


def test_every_model_is_held_against_the_table() -> None:
    assert models().keys() == EXACT_KIB_PER_TOKEN.keys() | ROUNDED_KIB_PER_TOKEN.keys() | {"glm-5"}


@pytest.mark.parametrize("name", models())
def test_constant_bytes(name: str) -> None:
    constant_mib = models()[name].geometry.constant_bytes / MIB
    if name in ROUNDED_CONSTANT_MIB:
        assert constant_mib == pytest.approx(ROUNDED_CONSTANT_MIB[name], abs=0.5)
    else:
        assert constant_mib == EXACT_CONSTANT_MIB.get(name, 0)


@pytest.mark.parametrize(("name", "gib"), GIB_AT_32K.items())
def test_what_a_context_of_32k_holds(name: str, gib: str) -> None:
    decimals = len(gib.partition(".")[2])
    assert f"{models()[name].geometry.kept_bytes(32 * KIB) / GIB:.{decimals}f}" == gib


@pytest.mark.parametrize("name", models())
def test_every_model_names_its_source(name: str) -> None:
    assert models()[name].source


PEAKS = {  # bf16 TFLOP/s, fp8 TFLOP/s, memory GB, TB/s
    "a100-sxm": (312, None, 80, 2.039),
    "a100-pcie": (312, None, 80, 1.935),
    "h100-sxm": (989, 1978, 80, 3.35),
    "h100-pcie": (756.5, 1513, 80, 2.0),
    "h200": (989, 1978, 141, 4.8),
    "b200": (2250, 4500, 180, 7.7),
    "gb200": (2500, 5000, 185 * 1.073741824, 8.0),
    "b300": (2250, 4500, 268 * 1.073741824, 7.75),
    "gb300": (2500, 5000, 277 * 1.073741824, 8.0),
    "l4": (121, 242, 24, 0.3),
    "l40s": (362, 733, 45 * 1.073741824, 0.864),
    "a10g": (62.5, None, 24, 0.6),
    "rtx-4090": (165, 330, 24, 1.008),
    "rtx-5090": (210, 419, 32, 1.792),
    "rtx-pro-6000": (468, 936, 96, 1.792),
    "mi300x": (1307.4, 2614.9, 192, 5.3),
    "mi325x": (1307, 2615, 256, 6.0),
    "mi355x": (2500, 5000, 288, 8.0),
}


@pytest.mark.parametrize("name", gpus())
def test_peaks_of_a_gpu(name: str) -> None:
    bf16, fp8, memory_gb, terabytes = PEAKS[name]
    hardware = gpus()[name]
    assert hardware.bf16_flops == pytest.approx(bf16 * 1e12)
    assert hardware.fp8_flops == (pytest.approx(fp8 * 1e12) if fp8 else None)
    assert hardware.memory_bytes == pytest.approx(memory_gb * 1e9)
    assert hardware.memory_bytes_per_second == pytest.approx(terabytes * 1e12)
    assert gpu_entries()[name].source


def test_no_gpu_of_the_table_is_missing() -> None:
    assert gpus().keys() == PEAKS.keys()


def test_aliases_find_rows_whatever_the_letter_case() -> None:
    found = model("Meta-Llama/Llama-3.1-8B-Instruct")
    assert found is not None and found.name == "llama-3.1-8b"
    assert gpu("H100") is gpus()["h100-sxm"]
    assert model("no-such-model") is None and gpu("no-such-gpu") is None


def test_no_alias_names_two_rows() -> None:
    for entries in (models(), gpu_entries()):
        names = [name.casefold() for key, entry in entries.items() for name in (key, *entry.aliases)]
        assert len(names) == len(set(names))


def test_published_break_even_contexts() -> None:
    """Contexts whose KV equals the weights: about 122k tokens for 8B and 431k for 70B."""
    for name, tokens in (("llama-3.1-8b", 122_000), ("llama-3.1-70b", 431_000), ("qwen3-32b", 250_000)):
        geometry = models()[name].geometry
        assert geometry.weight_bytes() / geometry.kv_bytes_per_token == pytest.approx(tokens, rel=0.01)


def test_an_8b_model_fits_an_h100_and_a_405b_does_not() -> None:
    assert kv_capacity_tokens(models()["llama-3.1-8b"].geometry, gpus()["h100-sxm"]) > 300_000
    assert kv_capacity_tokens(models()["llama-3.1-405b"].geometry, gpus()["h100-sxm"]) == 0


@pytest.mark.parametrize(
    ("name", "weights", "on", "count", "context", "batch", "measured_ms"),
    [
        ("llama-3.1-8b", "bf16", "h100-sxm", 1, 200, 1, 6.48),  # vLLM 0.21, short chats
        ("llama-3.3-70b", "fp8", "h100-sxm", 2, 5_250, 1, 18.6),  # NIM 1.8, 5,000 in and 500 out
        ("qwen3-30b-a3b", "fp8", "h200", 1, 32_000, 10, 16.0),  # vLLM, decode only
        ("llama-3.1-8b", "bf16", "rtx-4090", 1, 1_200, 64, 32.4),  # vLLM 0.19, ShareGPT
    ],
)
def test_predicted_decode_steps_against_published_ones(
    name: str, weights: WeightDtype, on: str, count: int, context: int, batch: int, measured_ms: float
) -> None:
    """Uncalibrated predictions come within a third; they are for choosing, not for charging."""
    entry, hardware = model(name), gpu(on)
    assert entry is not None and hardware is not None
    geometry = entry.geometry.with_dtypes(weights=weights)
    predicted_ms = 1_000 * decode_seconds(geometry, hardware.scaled(count), context, 1, batch)
    assert predicted_ms == pytest.approx(measured_ms, rel=0.33)


def test_a_predicted_prefill_against_a_published_one() -> None:
    """TTFT of 407 ms for 5,000 tokens: Llama-3.3-70B in fp8 on two H100."""
    geometry = models()["llama-3.1-70b"].geometry.with_dtypes(weights="fp8")
    assert prefill_seconds(geometry, gpus()["h100-sxm"].scaled(2), 5_000) == pytest.approx(0.407, rel=0.15)
