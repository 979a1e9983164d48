"""A session that comes back after a pause goes on with its latest turns only.

Rule: after so long a pause the engine has given the prefix away, so the window moves for nothing; without a pause this
policy does nothing. Messages carry no times on the wire, so the pause is that of the session.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveFloat, PositiveInt

from policies.draft import Draft


class DropStaleTurns(BaseModel):
    """Where the session was idle for `gap_seconds` or more, keep the instructions, the task and `keep_turns` turns."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["drop_stale_turns"] = "drop_stale_turns"
    mode: Literal["enforce", "shadow"] = "enforce"
    gap_seconds: PositiveFloat = 3600.0
    keep_turns: PositiveInt = 3

    def revise(self, draft: Draft, idle_seconds: float) -> Draft:
        """`draft` with the stale turns dropped, and with them all that waits for a step."""
        if idle_seconds < self.gap_seconds:
            return draft
        turns = draft.frame.conversation.turns()[1:]
        starts = [turn.start for turn in turns if turn.start not in draft.pinned]
        latest = starts[-self.keep_turns] if len(starts) >= self.keep_turns else 0
        cut = max((start for start in draft.frame.cuts if start <= latest), default=0)
        return draft.stepped(step="pause").with_cut(cut, self.kind)

    def may_act(self, messages: int, idle_seconds: float) -> bool:
        """Whether a conversation of so many messages, idle for so long, could have stale turns."""
        return idle_seconds >= self.gap_seconds and messages > self.keep_turns
