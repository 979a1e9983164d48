"""A session goes on without the turns that are stale: after a pause, or because they are old.

Rule: after a pause the engine has given the prefix away, so the window moves for nothing. For their age turns go in
steps: once the oldest is too old, all go that are half as old, so the prefix breaks twice in that time at most.
"""

from itertools import pairwise
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt, model_validator

from policies.ages import Ages
from policies.draft import Draft
from policies.keeping import KeepSeconds


class DropStaleTurns(BaseModel):
    """Where the session was idle for `gap_seconds` or more, keep the instructions, the task and `keep_turns` turns.

    No turn older than `older_than_seconds` is sent; when one becomes so old, only those younger than
    `newer_than_seconds` (default half of it) stay. The latest turn always stays. With `keep_original_seconds` what goes
    is kept so long after it was last left out, and a note behind the task names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["drop_stale_turns"] = "drop_stale_turns"
    mode: Literal["enforce", "shadow"] = "enforce"
    gap_seconds: PositiveFloat | None = 3600.0
    keep_turns: PositiveInt = 3
    older_than_seconds: PositiveFloat | None = None
    newer_than_seconds: PositiveFloat | None = None
    keep_original_seconds: KeepSeconds = 0.0

    @model_validator(mode="after")
    def _newer_is_less(self) -> Self:
        newer, older = self.newer_than_seconds, self.older_than_seconds
        if newer is not None and (older is None or newer >= older):
            raise ValueError("newer_than_seconds needs older_than_seconds, and must be below it")
        if self.gap_seconds is None and older is None:
            raise ValueError("give gap_seconds or older_than_seconds, or nothing is ever stale")
        return self

    def revise(self, draft: Draft, idle_seconds: float, ages: Ages) -> Draft:
        """`draft` with the stale turns dropped, and with them all that waits for a step."""
        if self.gap_seconds is not None and idle_seconds >= self.gap_seconds:
            starts = _loose(draft)
            latest = starts[-self.keep_turns] if len(starts) >= self.keep_turns else 0
            draft = self._from(draft.stepped(step="pause"), latest)
        return self._aged(draft, ages) if self.older_than_seconds is not None else draft

    def _aged(self, draft: Draft, ages: Ages) -> Draft:
        older = self.older_than_seconds or 0.0
        starts = [start for start in _loose(draft) if start >= draft.cut]
        second = starts[1] if len(starts) > 1 else len(draft.messages)
        if not starts or ages.older_than(older) < second:
            return draft  # the oldest turn that is sent has a part that is young enough, or there is none
        young = ages.older_than(self.newer_than_seconds or older / 2)
        stay = next((start for start, stop in pairwise([*starts, len(draft.messages)]) if stop > young), starts[-1])
        return self._from(draft.stepped(step="age"), stay) if stay > starts[0] else draft

    def _from(self, draft: Draft, start: int) -> Draft:
        """With the window moved as far as it may, up to `start`."""
        cut = max((cut for cut in draft.frame.cuts if cut <= start), default=0)
        return draft.with_cut(cut, self.kind, keeps=self.keep_original_seconds > 0)

    def may_act(self, messages: int, idle_seconds: float) -> bool:
        """Whether a conversation of so many messages, idle for so long, could have stale turns; ages have no size."""
        if self.older_than_seconds is not None:
            return True
        return self.gap_seconds is not None and idle_seconds >= self.gap_seconds and messages > self.keep_turns


def _loose(draft: Draft) -> list[int]:
    """Where the turns start that could go."""
    return [turn.start for turn in draft.frame.conversation.turns()[1:] if turn.start not in draft.pinned]
