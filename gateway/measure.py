"""What the metrics learn of a call that has ended.

Rule: TTFT runs from the request's arrival, TPOT is (end to end - TTFT) / (decode tokens - 1); both by the call's phase,
because prefill-heavy and decode-heavy calls are not comparable.
"""

from budgets.usage import Usage
from gateway.call import Outcome
from gateway.clock import Clock
from gateway.metrics import Metrics
from gateway.passage import Passage
from gateway.prefixes import found


class Measure:
    """Enters calls into the metrics."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def ended(self, passage: Passage, outcome: Outcome, used: Usage | None) -> None:
        """One call, however it ended."""
        may, delivery = passage.service.caller.may, passage.delivery
        tenant = self._metrics.tenant(may.tenant)
        self._metrics.requests.add(1, tenant, may.tier, delivery.pool, outcome)
        if used is not None:
            self._used(tenant, passage, used)
        if passage.prefix is not None and delivery.sent:
            found(self._metrics, passage.prefix, delivery)
        if delivery.first_at:
            self._timed(passage, used)

    def summarised(self, passage: Passage, used: Usage | None) -> None:
        """One call for a record of older turns, which no client made."""
        if used is None:
            return
        tenant, model = self._metrics.tenant(passage.service.caller.may.tenant), passage.service.model.name
        self._used(tenant, passage, used)
        for kind in ("prefill", "cached", "decode"):
            self._metrics.summary_tokens.add(getattr(used, f"{kind}_tokens"), tenant, model, kind)

    def _used(self, tenant: str, passage: Passage, used: Usage) -> None:
        totals = self._metrics.used.of(tenant, passage.service.model.name, passage.delivery.pool)
        totals.prefill += used.prefill_tokens
        totals.cached += used.cached_tokens
        totals.decode += used.decode_tokens
        totals.kv_read_bytes += passage.kv_read_bytes(used)
        charge = passage.charge(used)
        totals.kv_byte_seconds += charge.kv_byte_seconds
        totals.gpu_microseconds += charge.gpu_microseconds
        totals.money_nanos += charge.money_nanos
        totals.network_bytes += charge.network_bytes
        if used.source == "estimated":
            self._metrics.estimated.add(1, tenant)

    def _timed(self, passage: Passage, used: Usage | None) -> None:
        labels = (passage.phase, passage.delivery.pool)
        first_at = passage.delivery.first_at
        self._metrics.ttft.of(*labels).observe(first_at - passage.started_at)
        if used is not None and used.decode_tokens > 1:
            seconds = (self._clock() - first_at) / (used.decode_tokens - 1)
            self._metrics.tpot.of(*labels).observe(seconds)
