"""An engine's load, read from a scrape of its Prometheus page.

The rule: what is missing, or not a number, is None. Only the lines that matter are taken apart; the page of a busy
vLLM has thousands of others.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from backends.engines.kind import MetricNames

_LABEL: Final = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


@dataclass(frozen=True, slots=True)
class Load:
    """Sums over the data-parallel ranks of a server; `kv_usage` (0..1) is that of the fullest rank.

    `progress` only grows, by every token that the engine has worked through.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    kv_capacity_tokens: int | None = None
    preemptions: int | None = None
    progress: int | None = None


@dataclass(frozen=True, slots=True)
class _Sample:
    labels: str
    value: float


def parse_metrics(text: str, names: MetricNames) -> Load:
    """The load that a page in the Prometheus text format (0.0.4) tells, by the engine's own metric names."""
    samples = _samples(text, names)
    usage = _values(samples, names.kv_usage)
    used, capacity = _total(samples, names.kv_used_tokens), _capacity(samples, names)
    return Load(
        running=_total(samples, names.running),
        waiting=_total(samples, names.waiting),
        kv_usage=max(usage) if usage else used / capacity if used is not None and capacity else None,
        kv_capacity_tokens=capacity,
        preemptions=_total(samples, names.preemptions),
        progress=_progress(samples, names),
    )


def _samples(text: str, names: MetricNames) -> Mapping[str, Sequence[_Sample]]:
    wanted = frozenset().union(
        names.running, names.waiting, names.kv_usage, names.kv_used_tokens, names.kv_capacity_tokens,
        names.cache_config, names.preemptions, names.progress,
    )  # fmt: skip
    samples: dict[str, list[_Sample]] = {}
    for line in text.splitlines():
        name = line.partition(" ")[0].partition("{")[0]
        if name in wanted and (sample := _sample(line[len(name) :])):
            samples.setdefault(name, []).append(sample)
    return samples


def _sample(rest: str) -> _Sample | None:
    labels, _, value = rest.rpartition("}")
    try:
        number = float(value.split()[0])
    except (ValueError, IndexError):
        return None
    return _Sample(labels, number) if math.isfinite(number) else None


def _found(samples: Mapping[str, Sequence[_Sample]], names: Iterable[str]) -> Sequence[_Sample]:
    return next((samples[name] for name in names if name in samples), ())


def _values(samples: Mapping[str, Sequence[_Sample]], names: Iterable[str]) -> list[float]:
    return [sample.value for sample in _found(samples, names)]


def _total(samples: Mapping[str, Sequence[_Sample]], names: Iterable[str]) -> int | None:
    values = _values(samples, names)
    return round(sum(values)) if values else None


def _progress(samples: Mapping[str, Sequence[_Sample]], names: MetricNames) -> int | None:
    counted = [total for name in names.progress if (total := _total(samples, (name,))) is not None]
    return sum(counted) if counted else None


def _capacity(samples: Mapping[str, Sequence[_Sample]], names: MetricNames) -> int | None:
    blocks = [_block_tokens(dict(_LABEL.findall(s.labels))) for s in _found(samples, names.cache_config)]
    if not blocks:
        return _total(samples, names.kv_capacity_tokens)
    known = [tokens for tokens in blocks if tokens is not None]
    return sum(known) if len(known) == len(blocks) else None


def _block_tokens(labels: Mapping[str, str]) -> int | None:
    """vLLM writes `None` for what it does not know yet."""
    try:
        return int(labels["block_size"]) * int(labels["num_gpu_blocks"])
    except (KeyError, ValueError):
        return None
