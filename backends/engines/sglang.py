"""SGLang's server (0.5.23). Its metrics need `--enable-metrics`, its cached token counts `--enable-cache-report`."""

from typing import Final

from backends.engines.kind import Engine, MetricNames

SGLANG: Final = Engine(
    kind="sglang",
    metrics=MetricNames(
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        kv_usage=("sglang:token_usage",),
        kv_used_tokens=("sglang:num_used_tokens",),
        kv_capacity_tokens=("sglang:max_total_num_tokens",),
        progress=("sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
        preemptions=("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs"),
    ),
    understands=frozenset({"cache_salt", "priority", "stream_options.include_usage"}),
    busy_texts=("request queue is full",),
    # sgl-project/sglang issue 36877: markers that moved on every turn broke its radix cache.
    takes_cache_control=False,
    overflow_texts=("longer than the model's context length", "maximum context length"),
)
