"""What `/metrics` shows: plain counters that the pipeline adds to, rendered when somebody scrapes.

Rule: adding to a metric is an addition in a dict, never a lock or a log line; the number of tenants shown is capped, so
that labels cannot grow without bound.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import add
from typing import Final, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

Labels = tuple[str, ...]

TTFT_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
TOKEN_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 5)
MAX_TENANTS: Final = 1_000
OTHER: Final = "other"


class Counts:
    """A counter: `counts[labels] += n`, by `add`."""

    __slots__ = ("help", "labels", "name", "values")

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, description, labels
        self.values: dict[Labels, float] = defaultdict(float)

    def add(self, amount: float, *labels: str) -> None:
        self.values[labels] += amount

    def family(self) -> Metric:
        family = CounterMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in list(self.values.items()):
            family.add_metric(labels, value)
        return family


class Levels:
    """A gauge: what was seen last."""

    __slots__ = ("help", "labels", "name", "values")

    def __init__(self, name: str, description: str, *labels: str) -> None:
        self.name, self.help, self.labels = name, description, labels
        self.values: dict[Labels, float] = {}

    def set(self, value: float, *labels: str) -> None:
        self.values[labels] = value

    def family(self) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=self.labels)
        for labels, value in list(self.values.items()):
            family.add_metric(labels, value)
        return family


class Series:
    """One histogram of one set of labels. `observe` is on the path of every token."""

    __slots__ = ("_bounds", "buckets", "total")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.buckets = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.buckets[bisect_left(self._bounds, value)] += 1
        self.total += value

    def cumulative(self) -> list[tuple[str, float]]:
        running, rows = 0, []
        for bound, count in zip([*map(str, self._bounds), "+Inf"], self.buckets, strict=True):
            running += count
            rows.append((bound, float(running)))
        return rows


class Histogram:
    """Histograms by label."""

    __slots__ = ("_bounds", "help", "labels", "name", "series")

    def __init__(self, name: str, description: str, bounds: Sequence[float], *labels: str) -> None:
        self.name, self.help, self.labels, self._bounds = name, description, labels, bounds
        self.series: dict[Labels, Series] = {}

    def of(self, *labels: str) -> Series:
        if (series := self.series.get(labels)) is None:
            series = self.series[labels] = Series(self._bounds)
        return series

    def family(self) -> Metric:
        family = HistogramMetricFamily(self.name, self.help, labels=self.labels)
        for labels, series in list(self.series.items()):
            family.add_metric(labels, buckets=series.cumulative(), sum_value=series.total)
        return family


class Totals(NamedTuple):
    """What calls of one tenant used of one model in one pool."""

    prefill: int
    cached: int
    decode: int
    kv_read_bytes: int
    kv_byte_seconds: int
    gpu_microseconds: int
    money_nanos: int
    network_bytes: int


class UsedTotals:
    """Tokens and KV bytes by tenant, model and pool: one addition a call, whatever is counted."""

    __slots__ = ("_totals",)

    def __init__(self) -> None:
        self._totals: dict[Labels, Totals] = {}

    def add(self, used: Totals, *labels: str) -> None:
        totals = self._totals.get(labels)
        self._totals[labels] = used if totals is None else Totals._make(map(add, totals, used))

    def families(self) -> Iterator[Metric]:
        labels = ("tenant", "model", "pool")
        kinds = (*labels, "kind")
        tokens = CounterMetricFamily("kvgate_tokens", "Tokens: prefill (uncached), cached, decode.", labels=kinds)
        read = CounterMetricFamily(
            "kvgate_kv_read_bytes", "KV-cache bytes re-read while decoding (closed form).", labels=labels
        )
        held = CounterMetricFamily(
            "kvgate_kv_byte_seconds", "KV-cache bytes held, times the seconds they were.", labels=labels
        )
        gpu = CounterMetricFamily("kvgate_gpu_seconds", "Time of one GPU that calls' work takes.", labels=labels)
        money = CounterMetricFamily("kvgate_money", "What calls cost by the prices of the file.", labels=labels)
        network = CounterMetricFamily("kvgate_network_bytes", "Bodies from and to clients.", labels=labels)
        for values, totals in list(self._totals.items()):
            held.add_metric(values, totals.kv_byte_seconds)
            gpu.add_metric(values, totals.gpu_microseconds / 1e6)
            money.add_metric(values, totals.money_nanos / 1e9)
            network.add_metric(values, totals.network_bytes)
            for kind in ("prefill", "cached", "decode"):
                tokens.add_metric([*values, kind], getattr(totals, kind))
            read.add_metric(values, totals.kv_read_bytes)
        yield from (tokens, read, held, gpu, money, network)


class Reading(NamedTuple):
    """Values that are read when somebody scrapes. `counts`: they only grow."""

    name: str
    help: str
    labels: Labels
    read: Callable[[], Iterable[tuple[Labels, float]]]
    counts: bool

    def family(self) -> Metric:
        kind = CounterMetricFamily if self.counts else GaugeMetricFamily
        family: Metric = kind(self.name, self.help, labels=self.labels)
        for labels, value in self.read():
            family.add_metric(labels, value)  # type: ignore[attr-defined]  # both kinds have it
        return family


class Metrics(Collector):
    """All metrics of one gateway process. `phase` is the phase of the call: prefill-heavy or decode-heavy."""

    def __init__(self) -> None:
        self.requests = Counts("kvgate_requests", "Requests, by how they ended.", "tenant", "tier", "pool", "outcome")
        self.used = UsedTotals()
        self.estimated = Counts("kvgate_requests_estimated", "Calls settled without the engine's usage.", "tenant")
        self.removed = Counts(
            "kvgate_context_removed_tokens", "Tokens removed before sending.", "policy", "reason", "mode"
        )
        self.edits = Counts("kvgate_context_edits", "Edits made before sending.", "policy", "mode")
        self.thrash = Counts("kvgate_context_thrash", "Windows that moved again within 3 turns.", "policy")
        self.breaks = Counts("kvgate_prefix_breaks", "Prefixes that an engine had to compute again.", "pool", "kind")
        self.prefix = Counts(
            "kvgate_prefix_cached_tokens", "Cached tokens of sessions that went on, foretold and found.", "pool", "kind"
        )
        self.sessions_live = Levels("kvgate_sessions_live", "Live sessions, as the store last told.", "tenant")
        self.refusals = Counts("kvgate_context_refusals", "Prompts refused as too long.", "tenant", "policy", "mode")
        self.violations = Counts("kvgate_context_violations", "Edits that broke an invariant.", "rule")
        self.summaries = Counts("kvgate_summaries", "Records of older turns.", "result")
        self.summaries_failed = Counts("kvgate_summaries_failed", "Records that came to nothing.", "reason")
        self.summary_tokens = Counts(
            "kvgate_summary_tokens", "Tokens used for records of older turns.", "tenant", "model", "kind"
        )
        self.denied = Counts("kvgate_budget_denied", "Calls refused by a limit.", "tenant", "limit", "mode")
        self.unpriced = Counts(
            "kvgate_budget_unpriced",
            "Calls whose money a limit counts and that have no price.",
            "tenant",
            "model",
            "mode",
        )
        self.stopped = Counts("kvgate_budget_stopped", "Streams that a limit ended.", "tenant", "limit")
        self.near = Counts("kvgate_budget_near", "Calls that found a limit nearly full.", "tenant", "limit", "mode")
        self.degraded = Counts(
            "kvgate_budget_degraded", "Calls that got less by a soft limit.", "tenant", "limit", "action", "mode"
        )
        self.unwritten = Counts("kvgate_store_unwritten", "Calls not written to the store when they ended.")
        self.late = Counts("kvgate_settlements_late", "Settlements that had waited for the store.", "result")
        self.late_sessions = Counts("kvgate_sessions_late", "Sessions written after they had waited.", "result")
        self.local = Counts("kvgate_budget_local", "Calls admitted while the store was away.", "tenant")
        self.unopened = Counts("kvgate_store_unopened", "Texts in the store that could not be opened.", "what")
        self.stored_bytes = Levels(
            "kvgate_stored_text_bytes", "Text of a tenant in the store, when seen last.", "tenant"
        )
        self.originals = Counts("kvgate_originals", "Originals that edits would name, by what was done.", "outcome")
        self.evicted_texts = Counts("kvgate_stored_texts_evicted", "Texts that went for the tenant's cap.", "tenant")
        self.sessions = Counts("kvgate_sessions", "Sessions by what the lineage check found.", "found")
        self.histories = Counts("kvgate_histories", "Stored histories: how turns began and what went wrong.", "what")
        self.refused = Counts("kvgate_refused", "Requests answered with an error of the gateway's own.", "code")
        self.attempts = Counts("kvgate_attempts", "Attempts at engines, by outcome.", "pool", "replica", "outcome")
        self.usage_refused = Counts(
            "kvgate_engine_usage_refused", "Streams sent again without stream_options, which was refused.", "pool"
        )
        self.reloads = Counts("kvgate_config_reloads", "Changes of the configuration, done or refused.", "result")
        self.faults = Counts("kvgate_task_failures", "Background tasks that failed.", "task")
        self.ttft = Histogram(
            "kvgate_time_to_first_token_seconds", "Request in to first token out.", TTFT_SECONDS, "phase", "pool"
        )
        self.itl = Histogram(
            "kvgate_inter_token_latency_seconds", "Each gap between tokens.", TOKEN_SECONDS, "phase", "pool"
        )
        self.tpot = Histogram(
            "kvgate_time_per_output_token_seconds",
            "(end to end - TTFT) / (decode tokens - 1), per call.",
            TOKEN_SECONDS,
            "phase",
            "pool",
        )
        self._readings: list[Reading] = []
        self._tenants: set[str] = set()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def tenant(self, name: str) -> str:
        """The label for a tenant: its name, or `other` once `MAX_TENANTS` have been seen."""
        if name in self._tenants:
            return name
        if len(self._tenants) >= MAX_TENANTS:
            return OTHER
        self._tenants.add(name)
        return name

    def reading(
        self,
        name: str,
        description: str,
        labels: Labels,
        read: Callable[[], Iterable[tuple[Labels, float]]],
        *,
        counts: bool = False,
    ) -> None:
        """A value that somebody else keeps."""
        self._readings.append(Reading(name, description, labels, read, counts))

    def collect(self) -> Iterator[Metric]:
        yield from self.used.families()
        for counted in vars(self).values():
            if isinstance(counted, Counts | Levels | Histogram):
                yield counted.family()
        for reading in self._readings:
            yield reading.family()

    def render(self) -> bytes:
        """The text exposition format."""
        return generate_latest(self._registry)
