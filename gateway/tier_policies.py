"""What a tier's policies ask of the gateway: what it has to look at, to keep and to count before any of them is run.

Rule: read out of the policies as they are configured; nothing here depends on a call.
"""

from collections.abc import Sequence

from policies.cap_context import CapContext, EngineWindow
from policies.drop_stale_turns import DropStaleTurns
from policies.pin import Pin
from policies.policy import KeepsOriginals, Policy
from policies.repair import Repair
from policies.strip import Strip
from policies.summarize_older_turns import SummarizeOlderTurns


def sized(policies: Sequence[Policy]) -> Sequence[Policy]:
    """Those that have a threshold; what `strip` and `repair` look for may be of any size, and age has none."""
    return [policy for policy in policies if not (isinstance(policy, Strip | Repair | Pin) or goes_by_age(policy))]


def goes_by_age(policy: Policy) -> bool:
    """Whether a policy must know since when messages are there, so that every conversation is looked at."""
    return isinstance(policy, DropStaleTurns) and policy.older_than_seconds is not None


def keep_seconds(policies: Sequence[Policy]) -> float:
    """How long originals are kept by the policy that keeps them longest; 0: none does."""
    found = [p.keep_original_seconds for p in policies if isinstance(p, KeepsOriginals) and p.mode == "enforce"]
    return max(found, default=0.0)


def capped(policies: Sequence[Policy], limit_tokens: int | None, *, reported: bool = False) -> Sequence[Policy]:
    """The policies with the model's own limit behind them, where no cap of the tier is lower.

    `reported`: by its engines, which judge it themselves.
    """
    caps = [policy.limit_tokens for policy in policies if isinstance(policy, CapContext) and policy.mode == "enforce"]
    if limit_tokens is None or min(caps, default=limit_tokens + 1) <= limit_tokens:
        return policies
    return (*policies, (EngineWindow if reported else CapContext)(limit_tokens=limit_tokens))


def is_of_facts(policy: Policy) -> bool:
    """Whether a policy puts records together of facts, be it to see what it would do."""
    return isinstance(policy, SummarizeOlderTurns) and (policy.by == "facts" or policy.mode == "shadow")


def summarizing(policies: Sequence[Policy]) -> SummarizeOlderTurns | None:
    """The policy that replaces older turns by a record, where one is in force."""
    return next((p for p in policies if isinstance(p, SummarizeOlderTurns) and p.mode == "enforce"), None)
