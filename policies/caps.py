"""What the caps among a tier's policies say together.

Rule: the lowest of them binds.
"""

from collections.abc import Sequence

from policies.cap_context import CapContext, Refuse
from policies.policy import Policy


def reply_size(policies: Sequence[Policy], reply_tokens: int | None) -> int:
    """How much a reply weighs for the caps, so that `may_act` can tell; 0 where none of them counts it."""
    return max((policy.reply_size(reply_tokens) for policy in policies if isinstance(policy, CapContext)), default=0)


def prompt_limit(policies: Sequence[Policy], reply_tokens: int | None) -> int | None:
    """The tokens that a prompt may have, if a reply of so many is asked for; None: as many as it likes."""
    limits = [policy.prompt_limit_tokens(reply_tokens) for policy in policies if isinstance(policy, CapContext)]
    return min(limits, default=None)


def refusal(policies: Sequence[Policy], tokens: int, reply_tokens: int | None) -> Refuse | None:
    """What refuses a prompt of so many tokens, if any cap does."""
    refusals = (policy.judge(tokens, reply_tokens) for policy in policies if isinstance(policy, CapContext))
    found = [refusal for refusal in refusals if refusal is not None]
    return min(found, key=lambda refusal: refusal.limit_tokens, default=None)


def clamped(policies: Sequence[Policy], tokens: int, reply_tokens: int | None) -> int | None:
    """What the reply is clamped to behind a prompt of so many tokens, if it is."""
    clamps = (policy.clamped(tokens, reply_tokens) for policy in policies if isinstance(policy, CapContext))
    return min((tokens for tokens in clamps if tokens is not None), default=None)
