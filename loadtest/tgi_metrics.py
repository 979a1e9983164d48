"""What the emulated TGI counts, under the names of TGI 3.3's documentation. Not verified against a running server.

Rule: names, types and labels are those documented; TGI writes counters without the suffix that Prometheus suggests.
"""

import re
from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from loadtest.engine_settings import Plant
from loadtest.scheduler import Scheduler, Step, Token

SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
SIZES = tuple(2.0**power for power in range(18))
FAILURES = ("overloaded", "validation", "generation", "incomplete", "dropped", "template")
METHODS = ("prefill", "decode")


class TgiMetrics:
    """The registry of one emulated TGI."""

    content_type = "text/plain; version=0.0.4"

    def __init__(self, plant: Plant) -> None:
        self._plant = plant
        self._registry = registry = CollectorRegistry()
        self._requests = Counter("tgi_request_count", "Requests", registry=registry)
        self._successes = Counter("tgi_request_success", "Requests that were answered", registry=registry)
        self._failures = Counter("tgi_request_failure", "Requests that were not", ["err"], registry=registry)
        self._inferences = Counter("tgi_batch_inference_count", "Batches computed", ["method"], registry=registry)
        for failure in FAILURES:
            self._failures.labels(failure)
        for method in METHODS:
            self._inferences.labels(method)
        self._duration = self._histogram("request_duration", "From arrival to the last token", SECONDS)
        self._queue = self._histogram("request_queue_duration", "From arrival to the first batch", SECONDS)
        self._inference = self._histogram("request_inference_duration", "From the first batch to the end", SECONDS)
        self._gap = self._histogram("request_mean_time_per_token_duration", "Mean time of a token", SECONDS)
        self._generated = self._histogram("request_generated_tokens", "Tokens generated", SIZES)
        self._input = self._histogram("request_input_length", "Tokens of the prompt", SIZES)
        self._asked = self._histogram("request_max_new_tokens", "Tokens asked for at most", SIZES)
        self._batch = self._histogram("batch_next_size", "Sequences of a batch", SIZES)

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"tgi_{name}", text, buckets=buckets, registry=self._registry)

    def watch(self, scheduler: Scheduler) -> None:
        total = self._plant.limits.cache_tokens
        for name, text, read in (
            ("tgi_queue_size", "Sequences not yet in the batch", lambda: len(scheduler.waiting)),
            ("tgi_batch_current_size", "Sequences in the batch", lambda: len(scheduler.running)),
            (
                "tgi_batch_current_max_tokens",
                "Tokens in use",
                lambda: scheduler.pool.used * scheduler.limits.block_tokens,
            ),
            ("tgi_batch_max_total_tokens", "Tokens that fit", lambda: total),
        ):
            Gauge(name, text, registry=self._registry).set_function(read)

    def planned(self, step: Step) -> None:
        if step.shares:
            self._inferences.labels("prefill" if step.prefill else "decode").inc()
            self._batch.observe(len(step.shares))

    def computed(self, step: Step, tokens: Sequence[Token], now_seconds: float) -> None:
        for work in (token.sequence for token in tokens if token.sequence.finished):
            self._successes.inc()
            self._duration.observe(now_seconds - work.arrived_seconds)
            self._queue.observe(work.scheduled_seconds - work.arrived_seconds)
            self._inference.observe(now_seconds - work.scheduled_seconds)
            self._gap.observe((now_seconds - work.scheduled_seconds) / work.generated_tokens)
            self._generated.observe(work.generated_tokens)
            self._input.observe(work.prompt_tokens)

    def asked(self, choices: int, max_tokens: int) -> None:
        self._requests.inc()
        self._asked.observe(max_tokens)

    def refused(self) -> None:
        self._failures.labels("overloaded").inc()

    def dropped(self) -> None:
        self._failures.labels("dropped").inc()

    def transferred(self, transfer_bytes: int, seconds: float) -> None:
        """TGI hands no KV over."""

    def transfer_failed(self) -> None:
        """TGI hands no KV over."""

    def transfer_expired(self) -> None:
        """TGI hands no KV over."""

    def scrape(self) -> bytes:
        text = generate_latest(self._registry)
        text = re.sub(rb"(?m)^(?:# \w+ )?tgi_\w+_created\b.*\n", b"", text)
        return re.sub(rb"(?m)^((?:# \w+ )?tgi_\w+?)_total\b", rb"\1", text)
