"""Long tool outputs cut to head and tail: when they first arrive, or, by age, in a step.

Rule: an output that has been sent is trimmed later only in a step, for that breaks the engine's prefix cache in its
midst; what was trimmed stays trimmed in the same way (the session remembers it). JSON stays JSON. The result is counted
and fits, or there is no edit. Counting is bounded: a few counts of the short result, none of the long original.
"""

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated, Literal

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

from policies.conversation import Message
from policies.draft import Draft, Due
from policies.keeping import NOTHING, Keeping, KeepSeconds
from policies.trim_search import Count, fit
from policies.trimmed import Trimmed

TEMPLATE_TOKENS = 8
"""What a chat template puts around one message, taken high: a policy sees only the sum of it and the text."""


class Tools(BaseModel):
    """Which tools' outputs are trimmed, as globs over their names; a tool without a name is called ''."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    include: tuple[str, ...] = ("*",)
    exclude: tuple[str, ...] = ()

    def cover(self, name: str) -> bool:
        """Whether the tool of this name is meant."""
        if not self.exclude and "*" in self.include:
            return True
        return any(fnmatchcase(name, glob) for glob in self.include) and not any(
            fnmatchcase(name, glob) for glob in self.exclude
        )


class TrimToolOutput(BaseModel):
    """Cut a tool message above `max_tokens` down to it: `head_share` of what is kept from its head, the rest its tail.

    A message whose trim would remove fewer than `min_removed_tokens` stays as it is. With an age above 0 only outputs
    are cut that have so many turns (`age_turns`), so many groups of a call and its results (`age_groups`), or both
    behind them, and only in a step. An agent that was given one task stays in one turn, however much it calls. With
    `keep_original_seconds` above 0 the original is kept so long after it was last asked for, and the text names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["trim_tool_output"] = "trim_tool_output"
    mode: Literal["enforce", "shadow"] = "enforce"
    max_tokens: Annotated[int, Field(ge=64)] = 2000
    head_share: Annotated[float, Field(ge=0, le=1)] = 0.6
    tools: Tools = Tools()
    min_removed_tokens: PositiveInt = 1
    age_turns: NonNegativeInt = 0
    age_groups: NonNegativeInt = 0
    keep_original_seconds: KeepSeconds = 0.0

    def revise(self, draft: Draft, count: Count, keeping: Keeping = NOTHING) -> Draft:
        """`draft` with the outputs trimmed that have just arrived; those sent before wait for a step."""
        border = self._border(draft)
        messages, most = draft.messages, self.max_tokens
        long = [at for at in draft.frame.conversation.outputs if messages[at].tokens > most]
        long = [at for at in long if at < border and self._is_long(draft, at)]
        arrived = [] if self._by_age else [at for at in long if draft.is_free(at)]
        draft = draft.with_trims(self._trims(draft, arrived, count, keeping))
        sent = sorted(set(long).difference(arrived))
        savings = tuple((at, draft.output_tokens(at) - self.max_tokens) for at in sent)

        def make(now: Draft, start: int) -> Draft:
            old = [at for at in sent if at >= start]
            return now.with_late_trims(self._trims(now, old, count, keeping), self._is_young(now))

        return draft.propose(Due(savings, make))

    def may_act(self, largest_message_bytes: int) -> bool:
        """Whether a message of so many bytes could be too long (a token is at least a byte)."""
        return largest_message_bytes > self.max_tokens

    @property
    def _by_age(self) -> bool:
        return self.age_turns > 0 or self.age_groups > 0

    def _is_young(self, draft: Draft) -> Callable[[int], bool]:
        border = self._border(draft)
        return lambda at: at >= border

    def _border(self, draft: Draft) -> int:
        """Outputs from here on are too young."""
        conversation = draft.frame.conversation
        border = len(draft.messages)
        if self.age_turns:
            border = _start_of_last([turn.start for turn in conversation.turns()], self.age_turns)
        if self.age_groups:
            border = min(border, _start_of_last([group[0] for group in conversation.groups()], self.age_groups))
        return border

    def _is_long(self, draft: Draft, at: int) -> bool:
        """Of text alone: an image's place between texts could not be kept by one text, so such outputs stay whole."""
        message = draft.messages[at]
        if draft.output_tokens(at) <= self.max_tokens:
            return False
        return draft.keeps(at) and at not in draft.frame.untouched and self.tools.cover(message.name or "")

    def _trims(self, draft: Draft, long: Sequence[int], count: Count, keeping: Keeping) -> Mapping[int, Trimmed]:
        trims = ((at, self._trimmed(draft.messages[at], count, keeping)) for at in long if self._is_long(draft, at))
        return {at: trimmed for at, trimmed in trims if trimmed is not None}

    def _trimmed(self, message: Message, count: Count, keeping: Keeping) -> Trimmed | None:
        budget = self.max_tokens - TEMPLATE_TOKENS
        handle = keeping.handle_of(message.text) if self.keep_original_seconds else ""
        found = fit(message, budget, self.head_share, count, handle)
        if found is None:
            return None
        removed = message.tokens - found.tokens - TEMPLATE_TOKENS
        if removed < self.min_removed_tokens or len(found.text) >= len(message.text):
            return None
        return Trimmed(replace(found.trim, removed_tokens=removed, late=self._by_age), found.text)


def _start_of_last(starts: Sequence[int], count: int) -> int:
    """Where the last `count` of them begin; 0 where there are no others."""
    return starts[-count] if count < len(starts) else 0
