"""Less before nothing: what a caller gets of a model once a budget of its runs low.

Rule: what a soft limit changes is worked out once, as a `Service` of its own; a call that reaches a step goes on with
that one. It stays bound by and charged to the budgets of the model that it asked for.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from budgets.fullness import Share
from config.soft import Soft
from gateway.pacing import Pace
from gateway.responder import Header
from gateway.service import Service

ACTION_NAMES = {"context_tokens": "context", "tokens_per_second": "pace"}


@dataclass(frozen=True, slots=True)
class Stage:
    """One step, and what holds from there on. `pace` None: streams run as fast as they come."""

    soft: Soft
    service: Service
    pace: Pace | None = None

    @property
    def actions(self) -> tuple[str, ...]:
        """What it changes, as metrics call it."""
        return tuple([ACTION_NAMES.get(action, action) for action in self.soft.changes])


@dataclass(frozen=True, slots=True)
class Reached:
    """A step, and the limit that was full enough for it."""

    stage: Stage
    limit: str

    @property
    def header(self) -> Header:
        """What the client is told."""
        changes = ";".join(f"{action}={_plain(value)}" for action, value in self.stage.soft.changes.items())
        return b"x-kvgate-degraded", f"{self.limit}={self.stage.soft.label};{changes}".encode()


@dataclass(frozen=True, slots=True)
class Passed:
    """The step that holds for a call, and those in shadow that would."""

    holds: Reached | None = None
    shadow: tuple[Reached, ...] = ()

    @property
    def all(self) -> tuple[Reached, ...]:
        return self.shadow if self.holds is None else (*self.shadow, self.holds)


NO_STAGES: Final = Passed()


def reached(stages: Sequence[Stage], shares: Sequence[Share]) -> Passed:
    """What is reached at these shares: the highest step holds, each in shadow is told."""
    passed = [Reached(stage, limit) for stage in stages if (limit := _over(stage.soft, shares)) is not None]
    holding = [each for each in passed if each.stage.soft.mode == "enforce"]
    shadow = tuple([each for each in passed if each.stage.soft.mode == "shadow"])
    return Passed(max(holding, key=lambda each: each.stage.soft.at, default=None), shadow)


def _over(soft: Soft, shares: Sequence[Share]) -> str | None:
    """The fullest of the limits it goes by, if that is full enough."""
    over = [(share, label) for label, share in shares if share >= soft.at and (not soft.of or label in soft.of)]
    return max(over)[1] if over else None


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
