"""The series of vLLM 0.32 that the emulated engine moves: names, labels and buckets as recorded, texts of our own.

Rule: a counter is named without the suffix `_total`, which the exposition adds.
"""

from collections.abc import Mapping, Sequence

SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
STEP_SIZES = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)
FEW = (1, 2, 5, 10, 20)
PREEMPTIONS = (1, 2, 3, 4, 5, 10, 20)
FIRST = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
GAP = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
WHOLE = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)

Labelled = tuple[str, Sequence[str]]
"""A further label and the values it takes."""

COUNTERS: Mapping[str, tuple[str, Labelled | None]] = {
    "prefix_cache_queries": ("Prompt tokens looked up in the prefix cache", None),
    "prefix_cache_hits": ("Prompt tokens found in the prefix cache", None),
    "external_prefix_cache_queries": ("Prompt tokens asked of another engine", None),
    "external_prefix_cache_hits": ("Prompt tokens that another engine supplied", None),
    "num_preemptions": ("Sequences that lost their blocks and start anew", None),
    "prompt_tokens": ("Prompt tokens of sequences that began to generate", None),
    "prompt_tokens_cached": ("Prompt tokens that need not be computed, local and external", None),
    "prompt_tokens_by_source": (
        "Prompt tokens by where their KV came from",
        ("source", ("local_compute", "local_cache_hit", "external_kv_transfer")),
    ),
    "prompt_tokens_cached_by_source": (
        "Cached prompt tokens by the tier that held them",
        ("source", ("device", "host", "p2p", "disk", "external_unspecified")),
    ),
    "generation_tokens": ("Tokens generated", None),
    "request_success": (
        "Sequences that ended, by reason",
        ("finished_reason", ("stop", "length", "abort", "error", "repetition")),
    ),
    "estimated_flops_per_gpu": ("Floating point operations of one GPU, by the roofline model", None),
    "estimated_read_bytes_per_gpu": ("Bytes read from the memory of one GPU, by the roofline model", None),
}

TRANSFER_COUNTERS: Mapping[str, tuple[str, Labelled | None]] = {
    "nixl_num_failed_transfers": ("KV transfers that failed", None),
    "nixl_num_kv_expired_reqs": ("Prefilled prompts that nobody fetched in time", None),
}

HISTOGRAMS: Mapping[str, tuple[str, Sequence[float]]] = {
    "request_prompt_tokens": ("Prompt tokens of a sequence", SIZES),
    "request_generation_tokens": ("Tokens that a sequence generated", SIZES),
    "iteration_tokens_total": ("Tokens computed in one step", STEP_SIZES),
    "request_max_num_generation_tokens": ("The most tokens that a sequence of a request generated", SIZES),
    "request_params_n": ("The parameter n", FEW),
    "request_params_max_tokens": ("The parameter max_tokens", SIZES),
    "time_to_first_token_seconds": ("From arrival to the first token", FIRST),
    "inter_token_latency_seconds": ("Between two tokens of a sequence", GAP),
    "request_time_per_output_token_seconds": ("Mean time between the tokens of a sequence", GAP),
    "e2e_request_latency_seconds": ("From arrival to the last token", WHOLE),
    "request_queue_time_seconds": ("From arrival to the first step", WHOLE),
    "request_inference_time_seconds": ("From the first step to the last token", WHOLE),
    "request_prefill_time_seconds": ("From the first step to the first token", WHOLE),
    "request_decode_time_seconds": ("From the first token to the last", WHOLE),
    "request_num_preemptions": ("How often a sequence was preempted", PREEMPTIONS),
    "request_prefill_kv_computed_tokens": ("Prompt tokens of a sequence that were computed", SIZES),
}

TRANSFER_HISTOGRAMS: Mapping[str, tuple[str, Sequence[float]]] = {
    "nixl_bytes_transferred": ("Bytes of one KV transfer", [2.0**power for power in range(10, 41, 3)]),
    "nixl_xfer_time_seconds": ("Seconds of one KV transfer", FIRST),
}
