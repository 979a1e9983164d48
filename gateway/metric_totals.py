"""What calls used and cost, by tenant, model and pool: one look-up and one addition a call, whatever is counted."""

from collections.abc import Iterator
from operator import add
from typing import Final

from prometheus_client.core import CounterMetricFamily, Metric

from gateway.metric_kinds import Labels

Amounts = tuple[int, int, int, int, int, int, int, int]
"""Tokens prefilled, cached and decoded; KV bytes read, byte-seconds held; microseconds of a GPU, billionths of money,
bytes of bodies."""
KINDS: Final = ("prefill", "cached", "decode")


class UsedTotals:
    """Tokens and KV bytes by tenant, model and pool: one addition a call, whatever is counted."""

    __slots__ = ("_totals",)

    def __init__(self) -> None:
        self._totals: dict[Labels, tuple[int, ...]] = {}

    def add(self, used: Amounts, *labels: str) -> None:
        totals = self._totals.get(labels)
        self._totals[labels] = used if totals is None else tuple(map(add, totals, used))

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
            for kind, count in zip(KINDS, totals, strict=False):
                tokens.add_metric([*values, kind], count)
            read_bytes, byte_seconds, gpu_microseconds, money_nanos, network_bytes = totals[len(KINDS) :]
            read.add_metric(values, read_bytes)
            held.add_metric(values, byte_seconds)
            gpu.add_metric(values, gpu_microseconds / 1e6)
            money.add_metric(values, money_nanos / 1e9)
            network.add_metric(values, network_bytes)
        yield from (tokens, read, held, gpu, money, network)
