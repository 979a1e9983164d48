"""The records of a call that has ended: what its client is charged for, and what the operator bears.

Rule: whatever an engine did is recorded once, under one label. `client` is what the answer took; `summary` what a
record of older turns took, which no client asked for, but its tenant pays; `operator` is an attempt that failed before
its first byte and was tried elsewhere or given up, after its engine may have computed the prompt. Nobody is charged for
the latter.
"""

from budgets.record import OPERATOR, Entry, Record, stream_of
from budgets.usage import Usage
from gateway.delivery import Delivery
from gateway.passage import Bill, Opened, Passage


def entry_of(passage: Passage, opened: Opened, bill: Bill | None) -> Entry | None:
    """The records of a call, for the stream of its tenant; None if there are none, or its tier keeps none."""
    may = passage.service.caller.may
    if not may.usage_records:
        return None
    delivery = passage.delivery
    records = [] if bill is None else [_record(passage, opened, bill, delivery.pool, delivery.outcome, passage.label)]
    if delivery.absorbed:
        records += [_absorbed(passage, opened, each) for each in delivery.absorbed]
    return Entry(stream_of(may.tenant, may.organisation), may.usage_records, tuple(records)) if records else None


def _absorbed(passage: Passage, opened: Opened, attempt: Delivery) -> Record:
    """The whole prompt, computed: what the engine had of it in its cache it did not live to tell."""
    used = Usage.estimated(passage.prompt_tokens(opened.expected.prompt_tokens), 0)
    bill = Bill(used, 0, passage.service.costs.charge(used, passage.call, attempt, 0))
    return _record(passage, opened, bill, attempt.pool, "engine_failed", OPERATOR)


def _record(passage: Passage, opened: Opened, bill: Bill, pool: str, outcome: str, label: str) -> Record:
    caller, used, charge = passage.service.caller, bill.used, bill.charge
    return Record(
        tenant=caller.tenant,
        key=caller.key,
        session=passage.session or opened.session.id or opened.known.session,
        model=passage.service.name,
        pool=pool,
        outcome=outcome,
        source=used.source,
        prefill_tokens=used.prefill_tokens,
        cached_tokens=used.cached_tokens,
        decode_tokens=used.decode_tokens,
        kv_read_bytes=bill.kv_read_bytes,
        label=label,
        reasoning_tokens=used.reasoning_tokens,
        kv_byte_seconds=charge.kv_byte_seconds,
        gpu_microseconds=charge.gpu_microseconds,
        money_nanos=charge.money_nanos,
        network_bytes=charge.network_bytes,
    )
