"""What `/metrics` shows: every metric by name, which the pipeline adds to, rendered when somebody scrapes.

Rule: the number of tenants shown is capped, so that labels cannot grow without bound.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.metric_kinds import Counts, Histogram, Labels, Levels, Reading
from gateway.metric_totals import UsedTotals

TTFT_SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 20, 40, 80, 160)
TOKEN_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1, 2.5, 5)
MAX_TENANTS: Final = 1_000
OTHER: Final = "other"


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
        self.timeouts = Counts(
            "kvgate_timeouts", "Waits that came to their limit, by what was awaited.", "pool", "wait"
        )
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
