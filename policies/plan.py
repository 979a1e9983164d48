"""A tier's policies run over one conversation.

Rule: pure and deterministic. First the edits in force are made again, then each policy speaks in the order listed,
about what the ones before it have left, and the caps judge the result. Policies in shadow are run in a lane of their
own, together with the enforced ones, so that what they would do is known exactly and nothing of it is sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from policies.cap_context import CapContext, Refuse
from policies.conversation import Conversation, Message
from policies.draft import Draft, Trimmed
from policies.edit import Edit
from policies.keep_recent_turns import KeepRecentTurns
from policies.memory import EMPTY, InForce, Memory, Trim
from policies.policy import Policy
from policies.trim_search import Count
from policies.trim_tool_output import TEMPLATE_TOKENS, TrimToolOutput
from policies.trimmed_text import render
from policies.window import cuts

__all__ = ["Plan", "Refuse", "may_act", "plan"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send: the edits over the original, tokens before and after, and what to remember.

    `shadow` and `shadow_refusal` are what the policies in shadow would have added.
    """

    edits: tuple[Edit, ...]
    original_tokens: int
    sent_tokens: int
    memory: Memory
    shadow: tuple[Edit, ...] = ()
    shadow_refusal: Refuse | None = None


def plan(
    conversation: Conversation,
    policies: Sequence[Policy],
    memory: Memory,
    count: Count,
    *,
    known_messages: int = 0,
    cold: bool = False,
) -> Plan | Refuse:
    """The edits that `policies` ask for, or `Refuse` where the prompt stays too long.

    `count` gives the tokens of a text. The first `known_messages` have been sent before, edited or not: no new trim
    touches them. With `cold` the engine holds none of the prompt, so everything is decided anew.
    """
    before, known = (EMPTY, 0) if cold else (memory, known_messages)
    enforced = [policy for policy in policies if policy.mode == "enforce"]
    draft = _draft(conversation, enforced, before.enforced, count, known)
    refusal = _refusal(enforced, draft.total_tokens)
    if refusal is not None:
        return refusal
    edits = draft.edits()
    sent = set(edits)
    done = Plan(edits, conversation.total_tokens, draft.total_tokens, Memory(draft.in_force()))
    if len(enforced) < len(policies):
        what_if = _draft(conversation, policies, before.shadow, count, known)
        done = replace(
            done,
            memory=replace(done.memory, shadow=what_if.in_force()),
            shadow=tuple(edit for edit in what_if.edits() if edit not in sent),
            shadow_refusal=_refusal(policies, what_if.total_tokens),
        )
    return replace(done, memory=memory) if done.memory == memory else done


def may_act(policies: Sequence[Policy], total_bytes: int, largest_message_bytes: int, messages: int) -> bool:
    """Whether `plan` could do anything, told from sizes alone; False is certain for a session without edits in force.

    Bytes are those of the body and of its largest message as received, where an image counts as no less than its
    tokens: a token is at least a byte, and a template adds at most `TEMPLATE_TOKENS` to a message.
    """
    total, largest = total_bytes + messages * TEMPLATE_TOKENS, largest_message_bytes + TEMPLATE_TOKENS
    limit = _limit(policies)
    return any(_may_act(policy, total, largest, messages, limit) for policy in policies)


def _may_act(policy: Policy, total: int, largest: int, messages: int, limit: int | None) -> bool:
    match policy:
        case TrimToolOutput():
            return policy.may_act(largest)
        case KeepRecentTurns():
            return policy.may_act(total, messages, limit)
        case CapContext():
            return policy.may_act(total)


def _draft(
    conversation: Conversation, policies: Sequence[Policy], in_force: InForce, count: Count, known_messages: int
) -> Draft:
    draft = _replayed(conversation, in_force)
    limit = _limit(policies)
    for policy in policies:
        match policy:
            case TrimToolOutput():
                draft = policy.revise(draft, count, known_messages)
            case KeepRecentTurns():
                draft = policy.revise(draft, limit)
            case CapContext():
                pass
    return draft


def _replayed(conversation: Conversation, in_force: InForce) -> Draft:
    """The edits in force, as far as they concern this conversation."""
    messages = conversation.messages
    draft = Draft(conversation)
    cut = in_force.cut
    if cut and cut.at < len(messages) and conversation.prefix_digest(cut.at + 1) == cut.prefix:
        # An answer that came late to a call already dropped brings the call back.
        allowed = cuts(conversation, draft.pinned)
        draft = draft.with_cut(max((start for start in allowed if start <= cut.at), default=0))
    trims = {trim.digest: trim for trim in in_force.trims}
    kept = ((at, message) for at, message in enumerate(messages) if draft.keeps(at) and message.digest in trims)
    again = ((at, _trimmed_again(message, trims[message.digest])) for at, message in kept)
    return draft.with_trims({at: trimmed for at, trimmed in again if trimmed is not None})


def _trimmed_again(message: Message, trim: Trim) -> Trimmed | None:
    try:
        return Trimmed(trim, render(message.text, trim), again=True)
    except ValueError:
        # JSON nested so deep that it parsed with a little more stack then than there is now: it is trimmed anew.
        return None


def _limit(policies: Sequence[Policy]) -> int | None:
    limits = [policy.prompt_limit_tokens for policy in policies if isinstance(policy, CapContext)]
    return min(limits, default=None)


def _refusal(policies: Sequence[Policy], tokens: int) -> Refuse | None:
    refusals = (policy.judge(tokens) for policy in policies if isinstance(policy, CapContext))
    found = [refusal for refusal in refusals if refusal is not None]
    return min(found, key=lambda refusal: refusal.limit_tokens, default=None)
