"""The hard limit of a prompt, judged after every other policy.

Rule: never a silent cut. What does not fit is refused, with the limit, the size and the difference.
"""

from dataclasses import dataclass
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, NonNegativeInt, PositiveInt, model_validator


@dataclass(frozen=True, slots=True)
class Refuse:
    """The prompt has `tokens` where at most `limit_tokens` may be sent."""

    policy: str
    limit_tokens: int
    tokens: int
    message: str


class CapContext(BaseModel):
    """At most `limit_tokens` for a prompt, less what is set aside for the reply."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    kind: Literal["cap_context"] = "cap_context"
    mode: Literal["enforce", "shadow"] = "enforce"
    limit_tokens: PositiveInt
    reserve_output_tokens: NonNegativeInt = 0

    @model_validator(mode="after")
    def _room_is_left(self) -> Self:
        if self.reserve_output_tokens >= self.limit_tokens:
            raise ValueError("reserve_output_tokens must be below limit_tokens, or no prompt would ever fit")
        return self

    @property
    def prompt_limit_tokens(self) -> int:
        """The most tokens that a prompt may have."""
        return self.limit_tokens - self.reserve_output_tokens

    def judge(self, tokens: int) -> Refuse | None:
        """`Refuse` if a prompt of so many tokens is too long."""
        limit = self.prompt_limit_tokens
        if tokens <= limit:
            return None
        message = (
            f"The prompt has {tokens} tokens; at most {limit} are allowed here, so it is {tokens - limit} too long. "
            "Shorten the conversation or start a new one."
        )
        return Refuse(self.kind, limit, tokens, message)

    def may_act(self, total_bytes: int) -> bool:
        """Whether a prompt of this size in bytes could be refused."""
        return total_bytes > self.prompt_limit_tokens
