"""Replays added up: what a tier costs over some sessions, and what it keeps.

Rule: costs are those of the sessions as they are; what is kept is asked in the same sessions with facts planted, which
are a little longer.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.context_replay import Machine, Served, Tier, replayed
from bench.context_sessions import Session
from bench.probes import Fate, Kept, Kind, fates, planted


@dataclass(frozen=True, slots=True)
class Figures:
    """Of all calls of some sessions under one tier. Tokens are the prompts', bytes those of the KV cache.

    `calls` were sent; a session ends where one is `refused`.
    """

    tier: str
    calls: int
    refused: int
    breaks: int
    largest_tokens: int
    prompt_tokens: int
    prefill_tokens: int
    kv_read_bytes: int
    seconds: float
    kept: Kept

    @property
    def hit_rate(self) -> float:
        """The share of the prompts' tokens that the prefix cache held."""
        return 1 - self.prefill_tokens / self.prompt_tokens


def figures(sessions: Sequence[Session], tier: Tier, machine: Machine) -> Figures:
    """Replays every session twice: as it is for its costs, with facts planted for what is kept."""
    answered = [answer for session in sessions for answer in replayed(session, tier, machine)]
    calls = [answer for answer in answered if isinstance(answer, Served)]
    prefill = sum(served.prompt_tokens - served.cached_tokens for served in calls)
    read = sum(served.read_bytes(machine) for served in calls)
    prices = machine.pricing(1, 0)
    return Figures(
        tier=tier.name,
        calls=len(calls),
        refused=len(answered) - len(calls),
        breaks=sum(served.broken for served in calls),
        largest_tokens=max(served.prompt_tokens for served in calls),
        prompt_tokens=sum(served.prompt_tokens for served in calls),
        prefill_tokens=prefill,
        kv_read_bytes=read,
        seconds=prefill / prices.prefill_tokens_per_second + read / prices.memory_bytes_per_second,
        kept=kept(sessions, tier, machine),
    )


def kept(sessions: Iterable[Session], tier: Tier, machine: Machine) -> Kept:
    """What has become of planted facts, asked at every call behind them."""
    askings: Counter[tuple[Kind, Fate]] = Counter()
    for session in sessions:
        probed, facts = planted(session)
        for answer in replayed(probed, tier, machine):
            if isinstance(answer, Served):
                askings.update(fates(facts, answer))
    return Kept(askings)
