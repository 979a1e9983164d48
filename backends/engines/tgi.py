"""Text Generation Inference 3.3. Its KV usage is the token budget in use over the whole budget."""

from typing import Final

from backends.engines.kind import Engine, MetricNames

TGI: Final = Engine(
    kind="tgi",
    metrics=MetricNames(
        running=("tgi_batch_current_size",),
        waiting=("tgi_queue_size",),
        kv_used_tokens=("tgi_batch_current_max_tokens",),
        kv_capacity_tokens=("tgi_batch_max_total_tokens",),
    ),
    understands=frozenset({"stream_options.include_usage"}),
    busy_texts=("model is overloaded",),
    overflow_texts=("`inputs` must have less than", "`inputs` tokens + `max_new_tokens` must be <="),
    # 424 is how TGI reports that generation failed on its shards.
    faults=frozenset({424}),
)
