"""What one call used, in the words of budgets.

Rule: `prefill_tokens` and `cached_tokens` are disjoint; their sum is the prompt. An engine that does not report
cached tokens has told us nothing, so all of its prompt counts as prefill. `reasoning_tokens` are some of the
`decode_tokens`, told apart and never added to them.
"""

from typing import Literal, Self

import msgspec


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one call, by the engine's own report or by our count."""

    prefill_tokens: int
    cached_tokens: int
    decode_tokens: int
    source: Literal["engine", "estimated"]
    reasoning_tokens: int = 0

    @classmethod
    def reported(
        cls, prompt_tokens: int, cached_tokens: int | None, decode_tokens: int, reasoning_tokens: int | None = None
    ) -> Self:
        """From an engine's usage object; None: not reported. More of a part than there is of the whole is cut down."""
        cached = min(cached_tokens, prompt_tokens) if cached_tokens else 0
        reasoning = min(reasoning_tokens, decode_tokens) if reasoning_tokens else 0
        return cls(prompt_tokens - cached, cached, decode_tokens, "engine", reasoning)

    @classmethod
    def estimated(cls, prompt_tokens: int, decode_tokens: int) -> Self:
        """From our own count."""
        return cls(prompt_tokens, 0, decode_tokens, "estimated")

    @classmethod
    def cut_off(cls, prompt_tokens: int, cached_tokens: int | None, decode_tokens: int) -> Self:
        """The prompt from an engine's report, and what we have counted since."""
        cached = min(cached_tokens or 0, prompt_tokens)
        return cls(prompt_tokens - cached, cached, decode_tokens, "estimated")

    @property
    def prompt_tokens(self) -> int:
        return self.prefill_tokens + self.cached_tokens

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.decode_tokens
