"""What the metrics learn of a call that has ended.

Rule: TTFT runs from the request's arrival, TPOT is (end to end - TTFT) / (decode tokens - 1); both by the call's phase,
because prefill-heavy and decode-heavy calls are not comparable.
"""

from gateway.call import Outcome
from gateway.clock import Clock
from gateway.metrics import Metrics
from gateway.passage import Bill, Passage
from gateway.prefixes import found


class Measure:
    """Enters calls into the metrics."""

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics = metrics
        self._clock = clock

    def ended(self, passage: Passage, outcome: Outcome, bill: Bill | None) -> None:
        """One call, however it ended."""
        may, delivery = passage.service.caller.may, passage.delivery
        tenant = self._metrics.tenant(may.tenant)
        self._metrics.requests.add(1, tenant, may.tier, delivery.pool, outcome)
        if bill is not None:
            self._used(tenant, passage, bill)
        if passage.prefix is not None and delivery.sent:
            found(self._metrics, passage.prefix, delivery)
        if delivery.first_at:
            self._timed(passage, bill)

    def summarised(self, passage: Passage, bill: Bill | None) -> None:
        """One call for a record of older turns, which no client made."""
        if bill is None:
            return
        tenant, model = self._metrics.tenant(passage.service.caller.may.tenant), passage.service.name
        self._used(tenant, passage, bill)
        for kind in ("prefill", "cached", "decode"):
            self._metrics.summary_tokens.add(getattr(bill.used, f"{kind}_tokens"), tenant, model, kind)

    def _used(self, tenant: str, passage: Passage, bill: Bill) -> None:
        used, charge = bill.used, bill.charge
        amounts = (
            used.prefill_tokens,
            used.cached_tokens,
            used.decode_tokens,
            bill.kv_read_bytes,
            charge.kv_byte_seconds,
            charge.gpu_microseconds,
            charge.money_nanos,
            charge.network_bytes,
        )
        self._metrics.used.add(amounts, tenant, passage.service.name, passage.delivery.pool)
        if used.source == "estimated":
            self._metrics.estimated.add(1, tenant)

    def _timed(self, passage: Passage, bill: Bill | None) -> None:
        labels = (passage.phase, passage.delivery.pool)
        first_at = passage.delivery.first_at
        self._metrics.ttft.of(*labels).observe(first_at - passage.started_at)
        if bill is not None and bill.used.decode_tokens > 1:
            seconds = (self._clock() - first_at) / (bill.used.decode_tokens - 1)
            self._metrics.tpot.of(*labels).observe(seconds)
