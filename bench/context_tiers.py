"""The tiers that are compared: no policy, a window that slides every turn, single policies, and what goes together.

Rule: one list for all sessions; only its marks are in the measure of the sessions, as a tier's would be.
"""

from dataclasses import dataclass
from typing import Any

from bench.context_replay import Tier
from policies.cap_context import CapContext
from policies.dedupe_tool_output import DedupeToolOutput
from policies.keep_recent_turns import KeepRecentTurns
from policies.policy import KeepsOriginals, Policy
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TrimToolOutput

KEPT = 3
"""Turns that the sliding window keeps, and groups whose outputs are not old yet."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Marks in tokens: `trigger` is the high water, `output` what an output is trimmed to as it arrives, `old` later.

    `record` is what a record of older turns may take. With `capped` the trigger is a limit as well: what stays above
    it is refused.
    """

    trigger_tokens: int
    output_tokens: int
    old_tokens: int
    record_tokens: int
    capped: bool

    def window(self, share: float) -> tuple[Policy, ...]:
        """A window that cuts down to this share of the trigger, and the cap."""
        high = self.trigger_tokens
        window = KeepRecentTurns(high_water_tokens=high, low_water_tokens=round(high * share))
        return (window, CapContext(limit_tokens=high)) if self.capped else (window,)


FORTY = Scale(trigger_tokens=20_000, output_tokens=1_000, old_tokens=200, record_tokens=1_000, capped=True)
REAL = Scale(trigger_tokens=4_000, output_tokens=250, old_tokens=64, record_tokens=400, capped=False)
"""A real session here ends at 2,000 to 16,000 tokens, of which 900 to 3,200 are its task."""

NONE = "no policy"
SLIDING_TURNS = "3 turns, sliding"
SLIDING = "window sliding every turn"
TOGETHER = "together"


def tiers(scale: Scale) -> list[Tier]:
    """What is compared; no policy comes first."""
    high = scale.trigger_tokens
    dedupe = DedupeToolOutput(min_tokens=64)
    trim = TrimToolOutput(max_tokens=scale.output_tokens)
    old = TrimToolOutput(max_tokens=scale.old_tokens, age_groups=KEPT)
    together = (dedupe, trim, old, *scale.window(0.5))
    facts = SummarizeOlderTurns(
        by="facts", high_water_tokens=high, low_water_tokens=high // 2, max_tokens=scale.record_tokens
    )
    recorded = (dedupe, trim, old, facts, *scale.window(0.5))
    return [
        Tier(NONE),
        Tier(SLIDING_TURNS, (KeepRecentTurns(turns=KEPT, high_water_turns=KEPT),)),
        Tier(SLIDING, (KeepRecentTurns(high_water_tokens=high, low_water_tokens=high - 1),)),
        Tier("dedupe", (dedupe,)),
        Tier("trim on arrival", (trim,)),
        Tier("window to 3/4", scale.window(0.75)),
        Tier("window to 1/2", scale.window(0.5)),
        Tier("window to 1/4", scale.window(0.25)),
        Tier("old outputs, window to 1/2", (old, *scale.window(0.5))),
        Tier("trim, window to 1/2", (trim, *scale.window(0.5))),
        Tier(TOGETHER, together),
        Tier(f"{TOGETHER}, economic", together, economic=True),
        Tier(f"{TOGETHER}, outputs kept", _keeping(together, TrimToolOutput | DedupeToolOutput)),
        Tier(f"{TOGETHER}, all kept", _keeping(together)),
        Tier(f"{TOGETHER}, facts recorded", recorded),
        Tier("facts recorded, all kept", _keeping(recorded)),
    ]


def _keeping(policies: tuple[Policy, ...], kinds: Any = KeepsOriginals) -> tuple[Policy, ...]:
    kept = {"keep_original_seconds": 86_400.0}
    return tuple(policy.model_copy(update=kept) if isinstance(policy, kinds) else policy for policy in policies)
