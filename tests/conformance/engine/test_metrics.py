"""What the emulated engine exposes at /metrics is what vLLM 0.32 exposes, as far as it goes."""

from collections.abc import Iterable

from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from loadtest.engine import Engine
from tests.conformance.engine.recording import request, response, send

FOLDER = "vllm-0.32.0"
INFO = "vllm:cache_config_info"

READ_BY_A_GATEWAY = {
    "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc", INFO,
    "vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds", "vllm:request_prefill_time_seconds",
    "vllm:request_decode_time_seconds", "vllm:prefix_cache_hits", "vllm:prefix_cache_queries",
    "vllm:num_preemptions", "vllm:nixl_num_kv_expired_reqs", "vllm:estimated_read_bytes_per_gpu",
}  # fmt: skip


def families(body: bytes) -> dict[str, Metric]:
    found: Iterable[Metric] = text_string_to_metric_families(body.decode())
    return {family.name: family for family in found if family.name.startswith("vllm:")}


def recorded() -> dict[str, Metric]:
    names = ("metrics", "pd_prefill_metrics", "pd_decode_metrics")
    return {name: family for each in names for name, family in families(response(FOLDER, each).body).items()}


def labels(family: Metric) -> set[frozenset[str]]:
    return {frozenset(sample.labels) - {"le"} for sample in family.samples}


def samples(family: Metric) -> set[str]:
    return {sample.name for sample in family.samples}


async def ours(engine: Engine) -> dict[str, Metric]:
    await send(engine.port, request(FOLDER, "chat_stream_usage"))
    raw = b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    message = await send(engine.port, raw)
    assert message.headers["content-type"] == response(FOLDER, "metrics").headers["content-type"]
    return families(message.body)


async def test_every_name_is_recorded_with_the_same_type_and_labels(engine: Engine) -> None:
    theirs = recorded()
    for name, family in (await ours(engine)).items():
        assert name in theirs
        assert family.type == theirs[name].type, name
        assert samples(family) == samples(theirs[name]), name
        if name == INFO:
            assert min(labels(family)) <= min(labels(theirs[name]))
        else:
            assert labels(family) == labels(theirs[name]), name


async def test_what_a_gateway_reads_is_there(engine: Engine) -> None:
    assert set(await ours(engine)) >= READ_BY_A_GATEWAY


async def test_label_values_are_recorded_ones(engine: Engine) -> None:
    """Sources and reasons are enumerations: a new value would be a new meaning."""
    theirs = recorded()
    for name, family in (await ours(engine)).items():
        for label in {"source", "finished_reason", "reason", "sleep_state"} & set(family.samples[0].labels):
            values = {sample.labels[label] for sample in family.samples}
            assert values == {sample.labels[label] for sample in theirs[name].samples}, (name, label)


async def test_latency_buckets_are_the_recorded_ones(engine: Engine) -> None:
    theirs = recorded()
    for name, family in (await ours(engine)).items():
        if name.endswith("_seconds") and "nixl" not in name:
            edges = [sample.labels["le"] for sample in family.samples if "le" in sample.labels]
            assert edges == [sample.labels["le"] for sample in theirs[name].samples if "le" in sample.labels], name
