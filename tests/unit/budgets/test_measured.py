"""GPU time by the closed forms against real engines: four runs of vLLM 0.19 that kept their GPUs busy.

The sum over the calls must be most of the devices' time and never more than all of it: they stood still only while the
last calls ended, and between steps.
"""

import csv
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import pytest

from budgets.charge import Tariff
from budgets.cost import kv_read_bytes
from budgets.usage import Usage
from config.catalogue import gpu, model
from tests.unit.tree import ROOT

REPLICAS = {"rtx-pro-6000/qwen3-30b-a3b": 2}


class Measured(NamedTuple):
    """One call; times in seconds since the run began."""

    prompt_tokens: int
    decode_tokens: int
    scheduled: float
    first: float
    last: float


def measured(run: str) -> list[Measured]:
    with (ROOT / "bench" / "traces" / "vllm_measured.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["run"] == run]
    return [
        Measured(
            int(row["prompt_tokens"]),
            int(row["decode_tokens"]),
            float(row["scheduled_seconds"]),
            float(row["first_seconds"]),
            float(row["last_seconds"]),
        )
        for row in rows
    ]


class Batch:
    """How many sequences were decoding side by side."""

    def __init__(self, calls: Sequence[Measured]) -> None:
        changes = sorted([(call.first, 1) for call in calls] + [(call.last, -1) for call in calls])
        self.times = [at for at, _ in changes]
        self.running = list(accumulate(change for _, change in changes))
        spans = zip(self.running, self.times, self.times[1:], strict=False)
        self.areas = [0.0, *accumulate(running * (until - since) for running, since, until in spans)]

    def area(self, at: float) -> float:
        step = bisect_right(self.times, at) - 1
        return self.areas[step] + self.running[step] * (at - self.times[step])

    def mean(self, call: Measured) -> float:
        return (self.area(call.last) - self.area(call.first)) / max(1e-9, call.last - call.first)


@pytest.mark.parametrize(
    ("run", "share"),
    [
        ("rtx-4090/llama-3.1-8b", 0.83),
        ("rtx-pro-6000/llama-3.1-8b", 0.89),
        ("2 x rtx-pro-6000/qwen3-32b", 0.74),
        ("rtx-pro-6000/qwen3-30b-a3b", 0.91),
    ],
)
def test_the_gpu_time_of_all_calls_is_most_of_the_time_there_was(run: str, share: float) -> None:
    calls, replicas = measured(run), REPLICAS.get(run, 1)
    *count, (card, name) = *run.split(" x ")[:-1], run.split(" x ")[-1].split("/")
    entry, one = model(name), gpu(card)
    assert len(calls) == 300 and entry is not None and one is not None
    hardware = one.scaled(int(count[0]) if count else 1)
    tariff, batch, micros = Tariff(entry.geometry, hardware), Batch(calls), 0
    for call in calls:
        used = Usage.reported(call.prompt_tokens, None, call.decode_tokens)
        read = kv_read_bytes(entry.geometry, call.prompt_tokens, call.decode_tokens)
        micros += tariff.gpu_microseconds(used, batch.mean(call) / replicas, read)
    there_was = max(call.last for call in calls) * hardware.count * replicas
    assert micros / 1e6 / there_was == pytest.approx(share, abs=0.01)
