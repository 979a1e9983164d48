"""A window over the recent turns that moves in steps.

Rule: every move of the window makes the engine compute the prompt anew from there on, so it moves seldom and far: at
the high water it cuts down to the low water, and stays until the high water is reached again. A move frees at least the
distance between the two, or reaches the low water; so there are never more moves than steps of growth. Only a prompt
that would otherwise be refused is cut by less.
"""

from itertools import accumulate
from typing import Literal, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, PositiveInt, model_validator

from policies import window
from policies.copies import restorations
from policies.draft import WINDOW, Draft
from policies.keeping import KeepSeconds
from policies.pricing import Pricing, might_pay, pays


class Water(NamedTuple):
    """Marks in tokens: above `high` the window moves, down to `low`; above `limit` (if any) a prompt is refused."""

    high: int
    low: int
    limit: int | None

    def passed(self, tokens: int) -> bool:
        """Whether the window should move."""
        return tokens > self.high or self.refused(tokens)

    def refused(self, tokens: int) -> bool:
        """Whether it must, or there will be no answer."""
        return self.limit is not None and tokens > self.limit

    def is_worth(self, tokens: int, freed: int) -> bool:
        """Whether a step that frees so much goes far enough, or must be taken however short."""
        return freed >= self.high - self.low or tokens - freed <= self.low or (freed > 0 and self.refused(tokens))


class Move(NamedTuple):
    """A window that begins at `cut`, and what moving it there takes off the prompt."""

    cut: int
    freed_tokens: int


class KeepRecentTurns(BaseModel):
    """Keep the instructions, the task with its answer and the recent turns; drop the turns between.

    By turns, the first and pinned ones not counted: of more than `high_water_turns` (default twice `turns`) the latest
    `turns` stay. By tokens: above `high_water_tokens` turns are dropped down to `low_water_tokens` (default half of
    it), even if fewer than `turns` stay. The latest turn always stays, but for the first steps of an agent at work.
    Without any mark, only a prompt that would be refused is cut. With `keep_original_seconds` what falls out is kept so
    long after it was last left out, and a note behind the task names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["keep_recent_turns"] = "keep_recent_turns"
    mode: Literal["enforce", "shadow"] = "enforce"
    turns: PositiveInt | None = None
    high_water_turns: PositiveInt | None = None
    high_water_tokens: PositiveInt | None = None
    low_water_tokens: PositiveInt | None = None
    keep_original_seconds: KeepSeconds = 0.0

    @model_validator(mode="after")
    def _low_is_below_high(self) -> Self:
        if self.high_water_turns is not None and (self.turns is None or self.turns > self.high_water_turns):
            raise ValueError("high_water_turns needs turns, and turns must not be above it")
        low, high = self.low_water_tokens, self.high_water_tokens
        if low is not None and (high is None or low >= high):
            raise ValueError("low_water_tokens needs high_water_tokens, and must be below it")
        return self

    def revise(
        self, draft: Draft, limit_tokens: int | None, pricing: Pricing | None = None, policy: str = WINDOW
    ) -> Draft:
        """`draft` with a step taken if a mark is passed; `limit_tokens` is the cap that follows, if any.

        What is due goes first; if that brings the prompt down to the low water, the window stays. With `pricing` a step
        that does not pay is put off, unless the prompt would be refused.
        """
        water = self._water(limit_tokens)
        total = draft.total_tokens
        by_tokens = water is not None and water.passed(total)
        if not by_tokens and not self._is_past_turns(draft):
            return draft
        forced = water is not None and water.refused(total)
        if not forced and not might_pay(draft, self._moved(draft, total, water, policy), pricing):
            return draft
        moved = self._moved(draft.stepped(step="limit" if forced else "mark"), total, water, policy)
        freed = total - moved.total_tokens
        if moved.cut <= draft.cut and not (by_tokens and water and water.is_worth(total, freed)):
            return draft
        return moved if forced or pays(draft, moved, pricing) else draft

    def _moved(self, draft: Draft, before: int, water: Water | None, policy: str) -> Draft:
        """`draft` with the window where it should be; `before`: its tokens with what is due undone."""
        moves = _moves(draft)
        cut = self._cut_by_turns(draft, moves)
        if water is not None and water.passed(before):
            cut = max(cut, _cut_by_tokens(before, draft.total_tokens, moves, water))
        return draft.with_cut(cut, policy, keeps=self.keep_original_seconds > 0)

    def may_act(self, total_bytes: int, messages: int, limit_tokens: int | None) -> bool:
        """Whether a conversation of this size could pass a mark (a token is at least a byte, a turn a message)."""
        water = self._water(limit_tokens)
        high_turns = self._high_turns()
        by_tokens = water is not None and water.passed(total_bytes)
        return by_tokens or (high_turns is not None and messages > high_turns)

    def _high_turns(self) -> int | None:
        return self.high_water_turns or (self.turns and 2 * self.turns)

    def _water(self, limit_tokens: int | None) -> Water | None:
        high = self.high_water_tokens or limit_tokens
        if high is None:
            return None
        return Water(high, self.low_water_tokens or high // 2, limit_tokens)

    def _is_past_turns(self, draft: Draft) -> bool:
        high = self._high_turns()
        return high is not None and len(_recent(draft)) > high

    def _cut_by_turns(self, draft: Draft, moves: list[Move]) -> int:
        if self.turns is None or not self._is_past_turns(draft):
            return 0
        latest = _recent(draft)[-self.turns]
        return max((move.cut for move in moves if move.cut <= latest), default=0)


def _recent(draft: Draft) -> list[int]:
    """Where the turns in the window start that could be dropped; neither the first of all nor pinned ones count."""
    pinned = draft.pinned
    starts = (turn.start for turn in draft.frame.conversation.turns()[1:])
    return [start for start in starts if start >= draft.cut and start not in pinned]


def _cut_by_tokens(before: int, total: int, moves: list[Move], water: Water) -> int:
    """The nearest move down to the low water, else the farthest if worth it; `before`: with what is due undone."""
    if total <= water.low:
        return 0
    for move in moves:
        if total - move.freed_tokens <= water.low:
            return move.cut
    if not moves:
        return 0
    return moves[-1].cut if water.is_worth(before, before - total + moves[-1].freed_tokens) else 0


def _moves(draft: Draft) -> list[Move]:
    """All moves there are, nearest first; linear in the messages."""
    starts = [start for start in draft.frame.cuts if start > draft.cut]
    if not starts:
        return []
    costs = [_loose_tokens(draft, at) for at in range(draft.cut, starts[-1])]
    freed, restored, latest = list(accumulate(costs, initial=0)), _restored(draft), draft.frame.conversation.turns()[-1]
    # What the latest turn was asked stays, also before a window that begins inside it.
    asked = sum(costs[at - draft.cut] for at in window.opening(draft.frame.conversation, starts[-1]) if at >= draft.cut)
    kept = (asked if start > latest.start else 0 for start in starts)
    moves = zip(starts, kept, strict=True)
    return [Move(start, freed[start - draft.cut] - restored[start] - stays) for start, stays in moves]


def _loose_tokens(draft: Draft, at: int) -> int:
    return draft.tokens(at) if at not in draft.pinned and draft.keeps(at) else 0


def _restored(draft: Draft) -> list[int]:
    """By where the window begins: what it costs that copies stand in for the originals they pointed to."""
    steps = [0] * (len(draft.messages) + 2)
    if draft.copies:
        for restored in restorations(draft.copies, draft.pinned, draft.in_full, len(draft.messages)):
            steps[restored.start] += restored.tokens
            steps[restored.stop] -= restored.tokens
    return list(accumulate(steps))
