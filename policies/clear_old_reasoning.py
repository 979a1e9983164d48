"""Reasoning of turns that are over, left out.

Rule: whole turns at once, and only in a step, for it changes what has been sent; the latest turns keep theirs, the one
under way in any case. Reasoning inside the text of a message is text and stays.
"""

from typing import Literal

from pydantic import BaseModel, ConfigDict, PositiveInt

from policies.draft import Draft, Due, reasoning_in


class ClearOldReasoning(BaseModel):
    """Keep the reasoning of the latest `keep_turns` turns; clear the rest where it saves `min_removed_tokens`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["clear_old_reasoning"] = "clear_old_reasoning"
    mode: Literal["enforce", "shadow"] = "enforce"
    keep_turns: PositiveInt = 1
    min_removed_tokens: PositiveInt = 1000

    def revise(self, draft: Draft) -> Draft:
        """`draft` with the clearing waiting for a step."""
        turns = draft.frame.conversation.turns()
        if len(turns) <= self.keep_turns or not draft.frame.conversation.thinks:
            return draft
        border = turns[-self.keep_turns].start
        old = (turn for turn in turns if draft.cleared <= turn.start < border)
        thinking = [
            at
            for turn in old
            for at in reasoning_in(draft.frame, turn)
            if draft.keeps(at) and at not in draft.cleared_messages
        ]
        savings = tuple((at, draft.messages[at].reasoning_tokens) for at in thinking)
        if sum(saved for _, saved in savings) < self.min_removed_tokens:
            return draft
        return draft.propose(Due(savings, lambda now, start: now.with_cleared(border) if start <= thinking[0] else now))

    def may_act(self, total_bytes: int) -> bool:
        """Whether a prompt of this size in bytes could hold enough reasoning (a token is at least a byte)."""
        return total_bytes > self.min_removed_tokens
