"""What the emulated engine counts, under the names, types and labels that vLLM 0.32 exposes.

Rule: nothing is exposed under a `vllm:` name that a recorded server did not expose with the same type and labels.
Seconds are those that a client sees: at `--speed 20` a step that takes a GPU 10 ms is counted as 0.5 ms.
"""

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from loadtest.engine_settings import Plant
from loadtest.scheduler import Scheduler, Step, Token
from loadtest.sequence import Sequence as Work
from loadtest.vllm_series import COUNTERS, HISTOGRAMS, TRANSFER_COUNTERS, TRANSFER_HISTOGRAMS

CONTENT_TYPE = "text/plain; version=1.0.0; charset=utf-8"


class EngineMetrics:
    """The registry of one emulated vLLM. The driver and the routes tell it what happened; `scrape` writes it down."""

    def __init__(self, model: str, plant: Plant, *, estimate_reads: bool = True, transfers: bool = True) -> None:
        self._registry = CollectorRegistry()
        self._labels = {"engine": "0", "model_name": model}
        self._roofline = plant.roofline if estimate_reads else None
        self._totals: dict[tuple[str, str], Counter] = {}
        self._histograms: dict[str, Histogram] = {}
        self._expose_counters(model, transfers)
        self._expose_histograms(transfers)
        self._expose_cache_config(plant)

    content_type = CONTENT_TYPE

    def scrape(self) -> bytes:
        """The exposition in text form."""
        return generate_latest(self._registry)

    def watch(self, scheduler: Scheduler) -> None:
        """Read the gauges off this scheduler whenever somebody scrapes."""
        self._gauge("num_requests_running", "Sequences in the batch", lambda: len(scheduler.running))
        self._gauge("num_requests_waiting", "Sequences not yet in the batch", lambda: len(scheduler.waiting))
        self._gauge("kv_cache_usage_perc", "Share of KV blocks in use, 0 to 1", lambda: scheduler.pool.usage)
        reasons = {"capacity": lambda: len(scheduler.waiting), "deferred": lambda: 0}
        self._gauges("num_requests_waiting_by_reason", "Sequences that wait, by reason", "reason", reasons)
        states = {"awake": lambda: 1, "weights_offloaded": lambda: 0, "discard_all": lambda: 0}
        self._gauges("engine_sleep_state", "1 for the state the engine is in", "sleep_state", states)

    def planned(self, step: Step) -> None:
        """A step begins: who was preempted, who was admitted and what the cache gave them."""
        self.count("num_preemptions", len(step.preempted))
        for work in step.admitted:
            if not work.preemptions:
                self._looked_up(work)

    def computed(self, step: Step, tokens: Sequence[Token], now_seconds: float) -> None:
        """A step has ended and generated these tokens."""
        self.observe("iteration_tokens_total", step.tokens)
        self.count("generation_tokens", len(tokens))
        if self._roofline is not None:
            self.count("estimated_flops_per_gpu", self._roofline.flops(step))
            self.count("estimated_read_bytes_per_gpu", self._roofline.read_bytes(step))
        for token in tokens:
            self._generated(token)
            if token.sequence.finished:
                self._ended(token.sequence, now_seconds)

    def asked(self, choices: int, max_tokens: int) -> None:
        """A request was accepted."""
        self.observe("request_params_n", choices)
        self.observe("request_params_max_tokens", max_tokens)

    def transferred(self, transfer_bytes: int, seconds: float) -> None:
        """The KV of a prompt came from another engine."""
        self.observe("nixl_bytes_transferred", transfer_bytes)
        self.observe("nixl_xfer_time_seconds", seconds)

    def refused(self) -> None:
        """A request found the queue full."""
        self.count("admission_rejections", 1, "max_num_queued_reqs")

    def transfer_failed(self) -> None:
        self.count("nixl_num_failed_transfers")

    def transfer_expired(self) -> None:
        """A prompt was prefilled for an engine that never asked for it."""
        self.count("nixl_num_kv_expired_reqs")

    def dropped(self) -> None:
        """A client left: vLLM counts that nowhere."""

    def count(self, name: str, amount: float = 1, label: str = "") -> None:
        self._totals[name, label].inc(amount)

    def observe(self, name: str, value: float) -> None:
        self._histograms[name].observe(value)

    def _looked_up(self, work: Work) -> None:
        cached = work.cached_tokens or 0
        external = max(0, work.external_tokens - cached)
        self.count("prefix_cache_queries", work.prompt_tokens)
        self.count("prefix_cache_hits", cached)
        self.count("prompt_tokens_cached_by_source", cached, "device")
        if work.external_tokens:
            self.count("external_prefix_cache_queries", work.prompt_tokens - cached)
            self.count("external_prefix_cache_hits", external)
            self.count("prompt_tokens_cached_by_source", external, "p2p")

    def _generated(self, token: Token) -> None:
        if token.index:
            self.observe("inter_token_latency_seconds", token.gap_seconds)
            return
        work = token.sequence
        self.observe("time_to_first_token_seconds", token.gap_seconds)
        self.count("prompt_tokens", work.prompt_tokens)
        self.count("prompt_tokens_cached", work.known_tokens)
        self.count("prompt_tokens_by_source", work.prompt_tokens - work.known_tokens, "local_compute")
        self.count("prompt_tokens_by_source", work.cached_tokens or 0, "local_cache_hit")
        self.count("prompt_tokens_by_source", work.known_tokens - (work.cached_tokens or 0), "external_kv_transfer")

    def _ended(self, work: Work, now_seconds: float) -> None:
        self.count("request_success", 1, work.finish)
        decode_seconds = now_seconds - work.first_token_seconds
        for name, value in (
            ("request_prompt_tokens", work.prompt_tokens),
            ("request_generation_tokens", work.generated_tokens),
            ("request_max_num_generation_tokens", work.generated_tokens),
            ("request_time_per_output_token_seconds", decode_seconds / max(1, work.generated_tokens - 1)),
            ("e2e_request_latency_seconds", now_seconds - work.arrived_seconds),
            ("request_queue_time_seconds", work.scheduled_seconds - work.arrived_seconds),
            ("request_inference_time_seconds", now_seconds - work.scheduled_seconds),
            ("request_prefill_time_seconds", work.first_token_seconds - work.scheduled_seconds),
            ("request_decode_time_seconds", decode_seconds),
            ("request_num_preemptions", work.preemptions),
            ("request_prefill_kv_computed_tokens", work.prompt_tokens - work.known_tokens),
        ):
            self.observe(name, value)

    def _expose_counters(self, model: str, transfers: bool) -> None:
        tables = {**COUNTERS, **TRANSFER_COUNTERS} if transfers else COUNTERS
        for name, (text, extra) in tables.items():
            label, values = extra or ("", ("",))
            family = Counter(f"vllm:{name}", text, [*self._labels, *filter(None, (label,))], registry=self._registry)
            for value in values:
                self._totals[name, value] = family.labels(**self._labels, **({label: value} if label else {}))
        refused = Counter(
            "vllm:admission_rejections", "Requests refused at a queue limit", ["model_name", "reason"],
            registry=self._registry,
        )  # fmt: skip
        for reason in ("max_num_queued_reqs", "max_num_queued_tokens"):
            self._totals["admission_rejections", reason] = refused.labels(model, reason)

    def _expose_histograms(self, transfers: bool) -> None:
        tables = {**HISTOGRAMS, **TRANSFER_HISTOGRAMS} if transfers else HISTOGRAMS
        for name, (text, buckets) in tables.items():
            family = Histogram(f"vllm:{name}", text, list(self._labels), buckets=buckets, registry=self._registry)
            self._histograms[name] = family.labels(**self._labels)

    def _expose_cache_config(self, plant: Plant) -> None:
        sizes = {
            "block_size": str(plant.limits.block_tokens),
            "num_gpu_blocks": str(plant.limits.blocks),
            "kv_cache_size_tokens": str(plant.limits.cache_tokens),
            "cache_dtype": "auto",
            "enable_prefix_caching": str(plant.limits.prefix_caching),
            "engine": "0",
        }
        Gauge("vllm:cache_config_info", "The size of the KV cache", list(sizes), registry=self._registry).labels(
            **sizes
        ).set(1)

    def _gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        family = Gauge(f"vllm:{name}", text, list(self._labels), registry=self._registry)
        family.labels(**self._labels).set_function(read)

    def _gauges(self, name: str, text: str, label: str, reads: Mapping[str, Callable[[], float]]) -> None:
        family = Gauge(f"vllm:{name}", text, [*self._labels, label], registry=self._registry)
        for value, read in reads.items():
            family.labels(**self._labels, **{label: value}).set_function(read)
