"""Whether policies could do anything with a conversation, told from sizes alone.

Rule: no is certain. It is what keeps a call far below every mark from being counted, or looked at at all.
"""

from collections.abc import Sequence

from policies.cap_context import CapContext
from policies.caps import prompt_limit
from policies.clear_old_reasoning import ClearOldReasoning
from policies.dedupe_tool_output import DedupeToolOutput
from policies.drop_stale_turns import DropStaleTurns
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.policy import Policy
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.trim_tool_output import TEMPLATE_TOKENS, TrimToolOutput


def may_act(
    policies: Sequence[Policy],
    total_bytes: int,
    largest_message_bytes: int,
    messages: int,
    *,
    idle_seconds: float = 0.0,
    reply_size: int = 0,
) -> bool:
    """Whether `plan` could do anything, told from sizes alone; False is certain for a session without edits in force.

    Bytes are those of the body and of its largest message that may be a tool's output, as received, where an image
    counts as no less than its tokens: a token is at least a byte, and a template adds at most `TEMPLATE_TOKENS` to a
    message. `reply_size` weighs what was asked for in reply. What `strip` and `repair` look for has no size, so with
    them every conversation is looked at.
    """
    total, largest = total_bytes + messages * TEMPLATE_TOKENS, largest_message_bytes + TEMPLATE_TOKENS
    limit = prompt_limit(policies, reply_size)

    def may(policy: Policy) -> bool:
        if isinstance(policy, CapContext):
            return policy.may_act(total, reply_size)
        return _may_act(policy, total, largest, messages, limit, idle_seconds)

    return any(map(may, policies))


def _may_act(policy: Policy, total: int, largest: int, messages: int, limit: int | None, idle_seconds: float) -> bool:
    match policy:
        case TrimToolOutput() | DedupeToolOutput():
            return policy.may_act(largest)
        case KeepRecentTurns() | KeepRecentTokens():
            return policy.may_act(total, messages, limit)
        case SummarizeOlderTurns():
            return policy.may_act(total, limit)
        case ClearOldReasoning():
            return policy.may_act(total)
        case DropStaleTurns():
            return policy.may_act(messages, idle_seconds)
        case _:
            return policy.kind != "pin"
