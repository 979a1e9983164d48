"""A tier's policies run over one conversation.

Rule: pure and deterministic. First what is pinned and what is put right, then the edits in force are made again, then
each policy speaks in the order listed, about what the ones before it have left, and the caps judge the result. Policies
in shadow are run in a lane of their own, together with the enforced ones, so that what they would do is known exactly
and nothing of it is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from policies.cap_context import CapContext, Refuse
from policies.clear_old_reasoning import ClearOldReasoning
from policies.conversation import Conversation
from policies.dedupe_tool_output import DedupeToolOutput
from policies.draft import Draft
from policies.drop_stale_turns import DropStaleTurns
from policies.edit import Edit
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.keeping import NOTHING, Keeping
from policies.memory import EMPTY, InForce, Memory
from policies.outcome import ahead, edits, in_force
from policies.policy import Policy
from policies.pricing import Pricing, best_start
from policies.repair import Repair
from policies.replay import replayed
from policies.standing import Standing, dumps, framed, loads
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.summary import NO_RECORDS, Summary, Wanted
from policies.trim_search import Count
from policies.trim_tool_output import TEMPLATE_TOKENS, TrimToolOutput

ROUNDS = 4
"""How often policies speak in a step, at most; the second time they mostly have nothing to add."""

__all__ = ["Plan", "Pricing", "Refuse", "may_act", "plan", "reply_size"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to send: the edits over the original, tokens before and after, and what to remember.

    `reply_tokens` is what the reply is clamped to, if it is. `what_if` are all edits there would be if the policies in
    shadow were enforced, `shadow` those of them that are not made; `shadow_refusal`: or they would refuse it.
    `summary` is the record of older
    turns that is sent; `wanted` is one that the plan would use, or will; `resting` one to be made if the session is
    about to be forgotten.
    """

    edits: tuple[Edit, ...]
    original_tokens: int
    sent_tokens: int
    memory: Memory
    reply_tokens: int | None = None
    what_if: tuple[Edit, ...] = ()
    shadow: tuple[Edit, ...] = ()
    shadow_refusal: Refuse | None = None
    summary: Summary | None = None
    wanted: Wanted | None = None
    resting: Wanted | None = None


@dataclass(frozen=True, slots=True)
class _State:
    """What a session is in when it calls: how much was sent before, for how long it was idle, what a break costs."""

    count: Count
    known: int
    cold: bool
    idle_seconds: float
    pricing: Pricing | None
    reply_tokens: int | None
    automatic: Repair | None
    keeping: Keeping
    records: Mapping[bytes, str]


def plan(
    conversation: Conversation,
    policies: Sequence[Policy],
    memory: Memory,
    count: Count,
    *,
    known_messages: int = 0,
    cold: bool = False,
    idle_seconds: float = 0.0,
    pricing: Pricing | None = None,
    reply_tokens: int | None = None,
    automatic: Repair | None = None,
    keeping: Keeping = NOTHING,
    records: Mapping[bytes, str] = NO_RECORDS,
) -> Plan | Refuse:
    """The edits that `policies` ask for, or `Refuse` where the prompt stays too long.

    `count` gives the tokens of a text. The first `known_messages` have been sent before, edited or not: they change
    only in a step. With `cold` the engine holds none of the prompt, so everything is decided anew. The session was last
    used `idle_seconds` ago; `reply_tokens` were asked for (`max_tokens`; None: no bound). With `pricing` (economic) a
    step that does not pay is put off unless a limit forces it; without (strict) the marks alone decide. `automatic` is
    what must be repaired in any case, whatever is remembered. Originals are named as far as `keeping` allows; without
    it none is. `records` are those of older turns, by their names.
    """
    before, known = (EMPTY, 0) if cold else (memory, known_messages)
    state = _State(count, known, cold, idle_seconds, pricing, reply_tokens, automatic, keeping, records)
    enforced = [policy for policy in policies if policy.mode == "enforce"]
    draft, standing = _draft(conversation, enforced, before.enforced, state)
    refusal = _refusal(enforced, draft.total_tokens, reply_tokens)
    if refusal is not None:
        return replace(refusal, wanted=draft.wanted)
    made, remembered = _outcome(draft, standing)
    reply = _clamped(enforced, draft.total_tokens, reply_tokens)
    done = Plan(
        made,
        conversation.total_tokens,
        draft.total_tokens,
        Memory(remembered),
        reply,
        summary=draft.summary,
        wanted=draft.wanted,
        resting=_resting(enforced, draft),
    )
    if len(enforced) < len(policies):
        sent = set(made)
        what_if, standing = _draft(conversation, policies, before.shadow, state)
        more, remembered = _outcome(what_if, standing)
        done = replace(
            done,
            memory=replace(done.memory, shadow=remembered),
            what_if=more,
            shadow=tuple(edit for edit in more if edit not in sent),
            shadow_refusal=_refusal(policies, what_if.total_tokens, reply_tokens),
        )
    same = next((known for known in (memory, EMPTY) if known == done.memory), done.memory)
    return replace(done, memory=same)


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
    limit = _limit(policies, reply_size)

    def may(policy: Policy) -> bool:
        if isinstance(policy, CapContext):
            return policy.may_act(total, reply_size)
        return _may_act(policy, total, largest, messages, limit, idle_seconds)

    return any(map(may, policies))


def reply_size(policies: Sequence[Policy], reply_tokens: int | None) -> int:
    """How much a reply weighs for the caps, so that `may_act` can tell; 0 where none of them counts it."""
    return max((policy.reply_size(reply_tokens) for policy in policies if isinstance(policy, CapContext)), default=0)


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


def _draft(conversation: Conversation, policies: Sequence[Policy], before: InForce, state: _State) -> tuple[Draft, str]:
    """The draft that the policies leave, and the standing ones as they are remembered."""
    standing, remembered = _standing(policies, before)
    if state.automatic is not None:
        standing = (*standing, state.automatic)
    draft = replayed(framed(conversation, standing), before, state.known, state.cold, state.keeping, state.records)
    limit = _limit(policies, state.reply_tokens)
    for _ in range(ROUNDS):
        spoken = _spoken(replace(draft, dues=()), policies, limit, state)
        last, draft = draft, _settled(spoken, limit, state.pricing)
        # After a step those who spoke first may have more to say: what went had copies, what was due is free.
        if draft == last or (draft is spoken and not draft.open):
            break
    return draft, remembered


def _spoken(draft: Draft, policies: Sequence[Policy], limit: int | None, state: _State) -> Draft:
    for policy in policies:
        match policy:
            case TrimToolOutput() | DedupeToolOutput():
                draft = policy.revise(draft, state.count, state.keeping)
            case KeepRecentTurns() | KeepRecentTokens():
                draft = policy.revise(draft, limit, state.pricing)
            case SummarizeOlderTurns():
                draft = policy.revise(draft, limit, state.pricing, state.count, state.records)
            case ClearOldReasoning():
                draft = policy.revise(draft)
            case DropStaleTurns():
                draft = policy.revise(draft, state.idle_seconds)
            case _:
                pass
    return draft


def _outcome(draft: Draft, standing: str) -> tuple[tuple[Edit, ...], InForce]:
    made = edits(draft)
    return made, in_force(draft, standing) if made else InForce(ahead=ahead(draft))


def _resting(policies: Sequence[Policy], draft: Draft) -> Wanted | None:
    asked = (policy.resting(draft) for policy in policies if isinstance(policy, SummarizeOlderTurns))
    return next((wanted for wanted in asked if wanted is not None), None)


def _standing(policies: Sequence[Policy], before: InForce) -> tuple[Sequence[Standing], str]:
    """The standing policies: those in force with the edits that are, else those listed."""
    if before.edits and (remembered := loads(before.standing)) is not None:
        return remembered, before.standing
    listed = [policy for policy in policies if isinstance(policy, Standing)]
    return listed, dumps(listed)


def _settled(draft: Draft, limit: int | None, pricing: Pricing | None) -> Draft:
    """With what is still due done where the limit forces it, or where it pays."""
    if not draft.dues:
        return draft
    if limit is not None and draft.total_tokens > limit:
        return draft.stepped()
    start = best_start(draft, pricing) if pricing else None
    return draft if start is None else draft.stepped(start)


def _limit(policies: Sequence[Policy], reply_tokens: int | None) -> int | None:
    limits = [policy.prompt_limit_tokens(reply_tokens) for policy in policies if isinstance(policy, CapContext)]
    return min(limits, default=None)


def _refusal(policies: Sequence[Policy], tokens: int, reply_tokens: int | None) -> Refuse | None:
    refusals = (policy.judge(tokens, reply_tokens) for policy in policies if isinstance(policy, CapContext))
    found = [refusal for refusal in refusals if refusal is not None]
    return min(found, key=lambda refusal: refusal.limit_tokens, default=None)


def _clamped(policies: Sequence[Policy], tokens: int, reply_tokens: int | None) -> int | None:
    clamps = (policy.clamped(tokens, reply_tokens) for policy in policies if isinstance(policy, CapContext))
    return min((tokens for tokens in clamps if tokens is not None), default=None)
