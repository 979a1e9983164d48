"""A plan in the making: the original conversation, the outputs trimmed and where the window begins.

Rule: a draft only grows. A policy sees what the policies before it have done, through the methods here, and what it
adds is folded into edits over the original once all have spoken.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from policies import window
from policies.conversation import Conversation
from policies.edit import DropMessages, Edit, ReplaceText
from policies.memory import Cut, InForce, Trim

TRIM = "trim_tool_output"
WINDOW = "keep_recent_turns"
"""The policies whose edits these are, whether made now or again."""


@dataclass(frozen=True, slots=True)
class Trimmed:
    """A trim and the text it renders to; `again` if it was in force before, and so stands."""

    trim: Trim
    text: str
    again: bool = False


@dataclass(frozen=True)
class Draft:
    """`cut` is the first message of the window, 0 while nothing is dropped."""

    conversation: Conversation
    trimmed: Mapping[int, Trimmed] = field(default_factory=dict)
    cut: int = 0

    @cached_property
    def pinned(self) -> frozenset[int]:
        """What no window drops."""
        return window.pinned(self.conversation)

    def keeps(self, at: int) -> bool:
        """Whether message `at` is still sent."""
        return at >= self.cut or at in self.pinned

    def stands(self, at: int) -> bool:
        """Whether message `at` is trimmed as it was sent before."""
        return at in self.trimmed and self.trimmed[at].again

    def tokens(self, at: int) -> int:
        """Tokens that message `at` costs as it is sent, were it sent."""
        return self.conversation.messages[at].tokens - (self.removed_tokens(at) if at in self.trimmed else 0)

    def removed_tokens(self, at: int) -> int:
        """What trimming message `at` saves: as remembered, in the measure by which tokens are counted now."""
        trim, tokens = self.trimmed[at].trim, self.conversation.messages[at].tokens
        return max(1, trim.removed_tokens * tokens // trim.of_tokens) if trim.of_tokens else trim.removed_tokens

    @cached_property
    def total_tokens(self) -> int:
        """Tokens of the prompt as it is sent."""
        kept = (self.tokens(at) for at in range(len(self.conversation.messages)) if self.keeps(at))
        return self.conversation.overhead_tokens + sum(kept)

    def with_trims(self, more: Mapping[int, Trimmed]) -> "Draft":
        """With `more` messages trimmed."""
        return replace(self, trimmed={**self.trimmed, **more}) if more else self

    def with_cut(self, cut: int) -> "Draft":
        """With the window moved forward to `cut`."""
        return replace(self, cut=cut) if cut > self.cut else self

    def edits(self) -> tuple[Edit, ...]:
        """The edits over the original, in the order of the messages."""
        messages = self.conversation.messages
        edits: list[tuple[int, Edit]] = [
            (at, ReplaceText(TRIM, at, done.trim.digest, done.text, self.removed_tokens(at)))
            for at, done in self.trimmed.items()
            if self.keeps(at)
        ]
        for gone in window.dropped(self.conversation, self.cut, self.pinned):
            tokens = sum(messages[at].tokens for at in gone)
            digest = messages[gone.stop].digest
            edits.append((gone.start, DropMessages(WINDOW, gone.start, gone.stop, digest, tokens)))
        return tuple(edit for _, edit in sorted(edits, key=lambda pair: pair[0]))

    def in_force(self) -> InForce:
        """What must be remembered to make these edits again."""
        trims = {done.trim.digest: done.trim for at, done in self.trimmed.items() if self.keeps(at)}
        cut = Cut(self.cut, self.conversation.prefix_digest(self.cut + 1)) if self.cut else None
        return InForce(tuple(trims.values()), cut)
