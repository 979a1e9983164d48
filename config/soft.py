"""Soft limits: what a tier gives less of when its budgets run low, before it refuses anything.

Rule: a step says from which share of a budget on it holds and what it changes, and changes at least one thing. Of
several steps that are reached the highest holds, alone.
"""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, model_validator

from config.section import ModelName, Name, Section
from config.units import Count, Share

Positive = Annotated[Count, Field(gt=0)]
Priority = Annotated[int, Field(ge=-1_000, le=1_000, description="Lower runs first, as vLLM reads it.")]

ACTIONS = ("max_tokens", "context_tokens", "priority", "pool", "model", "tokens_per_second")


class Soft(Section):
    """One step: from `at` of a budget on, without the call itself.

    `of` are names of budgets; none: any of those that refuse. `max_tokens` bounds replies, `context_tokens` prompts,
    `priority` is what engines are told, `pool` is asked first, `model` answers in place of the one that was asked
    for, and `tokens_per_second` is what a tenant's streams get together, in each worker. In shadow a step is counted
    and changes nothing.
    """

    at: Share
    of: tuple[str, ...] = ()
    mode: Literal["enforce", "shadow"] = "enforce"
    max_tokens: Positive | None = None
    context_tokens: Positive | None = None
    priority: Priority | None = None
    pool: Name | None = None
    model: ModelName | None = None
    tokens_per_second: PositiveFloat | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> Self:
        if not self.changes:
            raise ValueError(f"it changes nothing; add one of {', '.join(ACTIONS)}")
        return self

    @property
    def changes(self) -> Mapping[str, object]:
        """What it changes, to what."""
        given = {action: getattr(self, action) for action in ACTIONS}
        return {action: value for action, value in given.items() if value is not None}

    @property
    def label(self) -> str:
        """`at` as people write it."""
        return f"{self.at * 100:g}%"
