"""Long tool outputs cut to head and tail, once, when they first arrive.

Rule: an output that has been sent is never trimmed later, for that would break the engine's prefix cache in its midst;
what was trimmed stays trimmed in the same way (the session remembers it). JSON stays JSON. The result is counted and
fits, or there is no edit. Counting is bounded: a few counts of the short result, none of the long original.
"""

from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveInt

from policies.conversation import Message
from policies.draft import Draft, Trimmed
from policies.trim_search import Count, fit

TEMPLATE_TOKENS = 8
"""What a chat template puts around one message, taken high: a policy sees only the sum of it and the text."""


class Tools(BaseModel):
    """Which tools' outputs are trimmed, as globs over their names; a tool without a name is called ''."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def cover(self, name: str) -> bool:
        """Whether the tool of this name is meant."""
        return any(fnmatchcase(name, glob) for glob in self.include) and not any(
            fnmatchcase(name, glob) for glob in self.exclude
        )


class TrimToolOutput(BaseModel):
    """Cut a tool message above `max_tokens` down to it: `head_share` of what is kept from its head, the rest its tail.

    A message whose trim would remove fewer than `min_removed_tokens` stays as it is.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["trim_tool_output"] = "trim_tool_output"
    mode: Literal["enforce", "shadow"] = "enforce"
    max_tokens: Annotated[int, Field(ge=64)] = 2000
    head_share: Annotated[float, Field(ge=0, le=1)] = 0.6
    tools: Tools = Tools()
    min_removed_tokens: PositiveInt = 1

    def revise(self, draft: Draft, count: Count, known_messages: int) -> Draft:
        """`draft` with the outputs trimmed that arrived after the first `known_messages`."""
        messages = draft.conversation.messages
        arrived = (at for at in range(known_messages, len(messages)) if draft.keeps(at) and self._is_long(draft, at))
        trims = ((at, self._trimmed(messages[at], count)) for at in arrived)
        return draft.with_trims({at: trimmed for at, trimmed in trims if trimmed is not None})

    def may_act(self, largest_message_bytes: int) -> bool:
        """Whether a message of so many bytes could be too long (a token is at least a byte)."""
        return largest_message_bytes > self.max_tokens

    def _is_long(self, draft: Draft, at: int) -> bool:
        message = draft.conversation.messages[at]
        # An image's place between texts could not be kept by one text, so such outputs stay whole.
        if message.role != "tool" or message.media or draft.stands(at) or not self.tools.cover(message.name or ""):
            return False
        return draft.tokens(at) > self.max_tokens

    def _trimmed(self, message: Message, count: Count) -> Trimmed | None:
        budget = self.max_tokens - TEMPLATE_TOKENS
        found = fit(message, budget, self.head_share, count)
        if found is None:
            return None
        removed = message.tokens - found.tokens - TEMPLATE_TOKENS
        if removed < self.min_removed_tokens or len(found.text) >= len(message.text):
            return None
        return Trimmed(replace(found.trim, removed_tokens=removed), found.text)
