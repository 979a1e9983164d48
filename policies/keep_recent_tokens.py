"""A window over the recent turns that knows no number of turns, only tokens.

Rule: the window of `keep_recent_turns` with its two marks in tokens, under a name of its own.
"""

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from policies.draft import Draft
from policies.keep_recent_turns import KeepRecentTurns
from policies.keeping import KeepSeconds
from policies.pricing import Pricing


class KeepRecentTokens(BaseModel):
    """Above `high_water_tokens` whole turns are dropped down to `low_water_tokens` (default half of it).

    The instructions, the task with its answer and the latest turn always stay. What falls out is kept as that window
    keeps it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["keep_recent_tokens"] = "keep_recent_tokens"
    mode: Literal["enforce", "shadow"] = "enforce"
    high_water_tokens: PositiveInt | None = None
    low_water_tokens: PositiveInt | None = None
    keep_original_seconds: KeepSeconds = 0.0

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Self:
        self.window()
        return self

    def window(self) -> KeepRecentTurns:
        """The window that does the work. Raises `ValueError` for marks that contradict each other."""
        return KeepRecentTurns(
            high_water_tokens=self.high_water_tokens,
            low_water_tokens=self.low_water_tokens,
            keep_original_seconds=self.keep_original_seconds,
        )

    def revise(self, draft: Draft, limit_tokens: int | None, pricing: Pricing | None = None) -> Draft:
        """`draft` with a step taken if the high mark is passed; `limit_tokens` is the cap that follows, if any."""
        return self.window().revise(draft, limit_tokens, pricing, self.kind)

    def may_act(self, total_bytes: int, messages: int, limit_tokens: int | None) -> bool:
        """Whether a conversation of this size could pass a mark."""
        return self.window().may_act(total_bytes, messages, limit_tokens)
