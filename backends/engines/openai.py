"""Any other server that speaks the OpenAI API: llama.cpp, llama-cpp-python, transformers serve, TensorRT-LLM.

Only what all of them tolerate is sent; the request id is a UUID, because llama-cpp-python refuses any other.
"""

from typing import Final

from backends.engines.kind import Engine, MetricNames

OPENAI: Final = Engine(
    kind="openai",
    metrics=MetricNames(
        running=("llamacpp:requests_processing", "trtllm_num_requests_running"),
        waiting=("llamacpp:requests_deferred", "trtllm_num_requests_waiting"),
        kv_usage=("llamacpp:kv_cache_usage_ratio", "trtllm_kv_cache_utilization"),
    ),
    understands=frozenset({"stream_options.include_usage", "x-request-id"}),
    busy_texts=("overloaded", "loading model", "queue is full", "currently busy"),
    overflow_texts=("maximum context length", "exceeds the available context size", "exceed context window"),
    overflow_marks=frozenset({"context_length_exceeded", "exceed_context_size_error"}),
)
