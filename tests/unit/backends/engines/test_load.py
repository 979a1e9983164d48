"""Scrapes as servers write them: the first name found wins, and what is missing is unknown."""

from backends.engines import ENGINES
from backends.engines.kind import EngineKind
from backends.engines.load import Load, parse_metrics

VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="tiny"} 3.0
vllm:num_requests_waiting{engine="0",model_name="tiny"} 0.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="tiny",reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0",model_name="tiny"} 0.25
vllm:num_preemptions_total{engine="0",model_name="tiny"} 2.0
vllm:num_preemptions_created{engine="0",model_name="tiny"} 1.7960133994071639e+09
vllm:cache_config_info{block_size="128",cache_dtype="auto",odd="a}\\"b",num_gpu_blocks="24"} 1.0
"""


def load(kind: EngineKind, text: str) -> Load:
    return parse_metrics(text, ENGINES[kind].metrics)


def test_vllm() -> None:
    assert load("vllm", VLLM) == Load(3, 0, 0.25, 24 * 128, 2)


def test_ranks_are_added_and_the_fullest_counts() -> None:
    second = VLLM.replace('engine="0"', 'engine="1"').replace("} 0.25", "} 0.75")
    assert load("vllm", VLLM + second) == Load(6, 0, 0.75, 2 * 24 * 128, 4)


def test_an_old_name_serves_where_the_new_one_is_missing() -> None:
    old = 'vllm:gpu_cache_usage_perc{model_name="m"} 0.5\n'
    assert load("vllm", old).kv_usage == 0.5
    assert load("vllm", old + VLLM).kv_usage == 0.25


def test_missing_is_unknown_and_zero_is_zero() -> None:
    assert load("vllm", "") == Load()
    assert load("vllm", "vllm:num_requests_running 0\n") == Load(running=0)


def test_what_is_no_number_is_unknown() -> None:
    assert load("openai", "llamacpp:requests_processing nan\nllamacpp:requests_deferred 1\n") == Load(waiting=1)
    assert load("vllm", "vllm:num_requests_running\nvllm:num_requests_waiting +Inf\n") == Load()


def test_a_capacity_that_the_engine_does_not_know_yet_is_unknown() -> None:
    assert (
        load("vllm", 'vllm:cache_config_info{block_size="16",num_gpu_blocks="None"} 1.0\n').kv_capacity_tokens is None
    )


def test_tgi_usage_is_the_budget_in_use() -> None:
    text = "tgi_queue_size 4\ntgi_batch_current_size 2\n"
    text += "tgi_batch_current_max_tokens 500\ntgi_batch_max_total_tokens 2000\n"
    assert load("tgi", text) == Load(running=2, waiting=4, kv_usage=0.25, kv_capacity_tokens=2000)
    assert load("tgi", "tgi_batch_current_max_tokens 5\ntgi_batch_max_total_tokens 0\n").kv_usage is None


def test_sglang() -> None:
    text = (
        'sglang:num_running_reqs{model_name="m",tp_rank="0"} 5.0\nsglang:num_queue_reqs{model_name="m"} 1.0\n'
        'sglang:token_usage{model_name="m"} 0.5\nsglang:max_total_num_tokens{model_name="m"} 1000.0\n'
    )
    assert load("sglang", text) == Load(running=5, waiting=1, kv_usage=0.5, kv_capacity_tokens=1000)


def test_timestamps_and_windows_line_ends_are_read_over() -> None:
    assert load("vllm", 'vllm:num_requests_running{a="b"} 3 1796013399\r\n') == Load(running=3)
