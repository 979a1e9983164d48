"""The hard limit of a prompt, or of a prompt with its reply, judged after every other policy.

Rule: never a silent cut. What does not fit is refused, with the limit, the size and the difference; only the room that
was asked for a reply may be lowered, where the settings say so.
"""

from dataclasses import dataclass, field, replace
from typing import Final, Literal, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, model_validator

from policies.summary import Wanted

UNBOUNDED_TOKENS = 1 << 62
"""What a reply may take for which nobody set a bound."""


TOO_LONG: Final = "The prompt is too long: this model's maximum context length is"
"""The words by which clients of OpenAI's, Anthropic's and vLLM's APIs know a context that they must shorten."""


MOST_TO_ONE: Final = 5
"""Tokens of cl100k, by which we count where no other `encoding` is named, to one of a model's own: 4.4 for Gujarati,
2.9 for Hindi, 1.4 for Chinese where that is o200k (OpenAI, "Hello GPT-4o")."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """The prompt has `tokens` where at most `limit_tokens` may be sent. With what is `wanted` it might fit."""

    policy: str
    limit_tokens: int
    tokens: int
    message: str
    wanted: Wanted | None = field(default=None, compare=False)

    def wanting(self, wanted: Wanted | None) -> "Refuse":
        """With the record that would help."""
        return replace(self, wanted=wanted)


class CapContext(BaseModel):
    """At most `limit_tokens` for a prompt, less what is set aside for the reply.

    `reply` says what becomes of the reply that the client asked for (`max_tokens`): it counts `apart`; prompt and reply
    together must fit or the call is `refuse`d; or it is `clamp`ed to what the prompt leaves, at least
    `reserve_output_tokens`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["cap_context"] = "cap_context"
    mode: Literal["enforce", "shadow"] = "enforce"
    limit_tokens: PositiveInt
    reserve_output_tokens: NonNegativeInt = 0
    reply: Literal["apart", "refuse", "clamp"] = "apart"

    @model_validator(mode="after")
    def _room_is_left(self) -> Self:
        if self._reserved_tokens >= self.limit_tokens:
            raise ValueError("reserve_output_tokens must be below limit_tokens, or no prompt would ever fit")
        return self

    @property
    def _reserved_tokens(self) -> int:
        return max(self.reserve_output_tokens, self.reply != "apart")

    def prompt_limit_tokens(self, reply_tokens: int | None = None) -> int:
        """The most tokens that a prompt may have to which `reply_tokens` were asked for; below 1: none fits."""
        asked = reply_tokens or 0 if self.reply == "refuse" else 0
        return self.limit_tokens - max(self._reserved_tokens, asked)

    def judge(self, tokens: int, reply_tokens: int | None = None) -> Refuse | None:
        """`Refuse` if a prompt of so many tokens is too long."""
        limit = self.prompt_limit_tokens(reply_tokens)
        if tokens <= limit:
            return None
        if self.reply == "refuse" and reply_tokens is not None:
            return self._refused_together(tokens, reply_tokens)
        message = (
            f"{TOO_LONG} {limit} tokens here, and the prompt has {tokens}, {tokens - limit} too many. "
            "Shorten the conversation or start a new one."
        )
        return Refuse(self.kind, limit, tokens, message)

    def _refused_together(self, tokens: int, reply_tokens: int) -> Refuse:
        reply = max(self._reserved_tokens, reply_tokens)
        total = tokens + reply
        message = (
            f"{TOO_LONG} {self.limit_tokens} tokens here with the reply, and the request has {total}, "
            f"{total - self.limit_tokens} too many: {tokens} in the prompt, {reply} for the reply. "
            "Lower max_tokens or shorten the conversation."
        )
        return Refuse(self.kind, self.limit_tokens, total, message)

    def clamped(self, tokens: int, reply_tokens: int | None) -> int | None:
        """What a reply to a prompt of so many tokens may have; None where what was asked for stands."""
        left = self.limit_tokens - tokens
        return left if self.reply == "clamp" and (reply_tokens is None or reply_tokens > left) else None

    def reply_size(self, reply_tokens: int | None) -> int:
        """How much a reply weighs for which so many tokens were asked: what has no bound is clamped, never refused."""
        if self.reply == "apart":
            return 0
        return reply_tokens if reply_tokens is not None else UNBOUNDED_TOKENS if self.reply == "clamp" else 0

    def may_act(self, total_bytes: int, reply_size: int = 0) -> bool:
        """Whether a prompt of this size in bytes could be refused, or its reply clamped."""
        reply = 0 if self.reply == "apart" else reply_size
        return total_bytes + max(reply, self._reserved_tokens) > self.limit_tokens


class EngineWindow(CapContext):
    """The context that the engines report, where nobody configured one.

    They count by the model's own tokenizer and refuse by themselves; ours is another, so that what it finds too long
    may well fit. Refused here is only what no tokenizer makes fit.
    """

    def judge(self, tokens: int, reply_tokens: int | None = None) -> Refuse | None:
        """`Refuse` if a prompt of so many tokens is too long however it is counted."""
        return super().judge(tokens, reply_tokens) if tokens > self.limit_tokens * MOST_TO_ONE else None
