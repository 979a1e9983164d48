"""What the gateway must know of an engine's software, as data: one row a kind.

The rule: a name that an engine does not export is unknown, never zero; a field that an engine does not know is not
sent.
"""

from dataclasses import dataclass
from typing import Literal

EngineKind = Literal["vllm", "tgi", "sglang", "openai"]

# Request fields (and one header) that the gateway owns and sends only to engines that know them.
OwnedField = Literal[
    "cache_salt", "priority", "request_id", "stream_options.include_usage", "kv_transfer_params", "x-request-id"
]


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Names by concept, newest first; the first one found in a scrape wins.

    `kv_usage` is 0..1. Where an engine exports no such ratio, it is `kv_used_tokens` over `kv_capacity_tokens`.
    `progress` are counters that move while an engine gets on, all of them together.
    Where it exports no capacity, `cache_config` names the series whose labels `block_size` and `num_gpu_blocks`
    give it.
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_usage: tuple[str, ...] = ()
    kv_used_tokens: tuple[str, ...] = ()
    kv_capacity_tokens: tuple[str, ...] = ()
    cache_config: tuple[str, ...] = ()
    preemptions: tuple[str, ...] = ()
    progress: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Engine:
    """One kind. The texts are parts of error messages, in lower case.

    `overflow_marks` are values of an error's type, code or param that mean the prompt is too long. `faults` are
    statuses below 500 that nevertheless are the engine's own failure. Without `takes_broken_arguments` a
    conversation is refused for ever once a call in it has arguments that are no JSON object; without
    `takes_cache_control` markers of the prefix cache become part of the prompt.
    """

    kind: EngineKind
    metrics: MetricNames
    understands: frozenset[OwnedField]
    busy_texts: tuple[str, ...] = ()
    overflow_texts: tuple[str, ...] = ()
    overflow_marks: frozenset[str] = frozenset()
    faults: frozenset[int] = frozenset()
    takes_broken_arguments: bool = True
    takes_cache_control: bool = True
