"""What an engine's own numbers say beyond what this process knows: work of others there, KV memory that runs out, and
whether the numbers can still be believed.

The rule: what is not told is not known, and changes nothing. Numbers that stopped being fresh say that the replica is
no longer well although it answers: it comes last, and is never taken out for that alone.
"""

from dataclasses import dataclass, replace
from typing import Final

from backends.engines.load import Load

KV_TIGHT: Final = 0.8
"""Above this share of its KV memory an engine comes ever closer to putting sequences off, or out again."""
SILENT_PROBES: Final = 3
"""So many probes without a load in a row, from an engine that told it before, and its numbers are stale."""
STUCK_SECONDS: Final = 60.0
"""An engine that has run calls for so long without one more token is stuck; longer than the longest prefill takes."""


def extra_calls(load: Load, own_calls: int) -> float:
    """Calls that an engine has beside our own, and up to one more as its KV memory fills up."""
    others = max(0, (load.running or 0) + (load.waiting or 0) - own_calls)
    tight = max(0.0, min(1.0, load.kv_usage or 0.0) - KV_TIGHT) / (1 - KV_TIGHT)
    return others + tight


@dataclass(frozen=True, slots=True)
class Freshness:
    """How long ago an engine's numbers were told (in probes) and moved (seconds, on the pool's clock)."""

    told: bool = False
    silent_probes: int = 0
    progress: int | None = None
    moved_at: float = 0.0

    def after(self, load: Load | None, now: float) -> "Freshness":
        """The freshness after one more probe; `load` None: nothing was told."""
        if load is None or load.running is None:
            return replace(self, silent_probes=self.silent_probes + 1) if self.told else self
        moved = load.progress is None or load.progress != self.progress or not load.running
        return Freshness(True, 0, load.progress, now if moved else self.moved_at)

    def stale(self, now: float) -> bool:
        """Whether the numbers stopped being fresh."""
        return self.told and (self.silent_probes >= SILENT_PROBES or now - self.moved_at > STUCK_SECONDS)


UNTOLD: Final = Freshness()
