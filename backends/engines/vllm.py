"""vLLM's OpenAI server (0.32 and 0.33, V1 engine; older metric names after the new ones)."""

from typing import Final

from backends.engines.kind import Engine, MetricNames

VLLM: Final = Engine(
    kind="vllm",
    metrics=MetricNames(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        cache_config=("vllm:cache_config_info",),
        preemptions=("vllm:num_preemptions_total",),
        progress=("vllm:generation_tokens_total", "vllm:prompt_tokens_total"),
    ),
    understands=frozenset(
        {
            "cache_salt",
            "priority",
            "request_id",
            "stream_options.include_usage",
            "kv_transfer_params",
            "x-request-id",
        }
    ),
    busy_texts=(
        "engine is currently busy",
        "prefill token backlog limit",
        "model is currently scaling",
        "request failed; please retry",
    ),
    overflow_texts=("maximum context length", "maximum model length"),
    overflow_marks=frozenset({"input_tokens", "input_text"}),
    # vllm-project/vllm issue 47761; later versions than pull request 48922 may take them.
    takes_broken_arguments=False,
)
