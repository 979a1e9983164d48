"""A tier's policies run over one conversation.

Rule: pure and deterministic. First what is pinned and what is put right, then the edits in force are made again, then
each policy speaks in the order listed, about what the ones before it have left, and the caps judge the result. Policies
in shadow are run in a lane of their own, together with the enforced ones, so that what they would do is known exactly
and nothing of it is sent.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from policies import outcome
from policies.ages import Ages, noted
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
from policies.memory import EMPTY, Cut, InForce, Memory, Seen
from policies.outcome import Reason, ahead, edits, reasons
from policies.policy import Policy
from policies.pricing import Pricing, best_start, first_change
from policies.repair import Repair
from policies.replay import replayed
from policies.standing import Standing, dumps, framed, loads
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.summary import NO_RECORDS, Summary, Wanted
from policies.trim_search import Count
from policies.trim_tool_output import TEMPLATE_TOKENS, TrimToolOutput
from policies.trimmed_text import Render, render

THRASH_TURNS = 3
"""A window that moves again within so many turns frees too little, or its marks lie too close together."""

ROUNDS = 4
"""How often policies speak in a step, at most; the second time they mostly have nothing to add."""

__all__ = ["Plan", "Pricing", "Refuse", "may_act", "plan", "reply_size"]


class Plan(msgspec.Struct, frozen=True):
    """What to send: the edits over the original with the reason of each, tokens before and after, what to remember.

    Of what was sent before `cached_tokens` stand unchanged at the front, and `again_tokens` behind the first change are
    sent again. `refilled`: the window moves although it has moved within the last `THRASH_TURNS` turns.
    `reply_tokens` is what the reply is clamped to, if it is. `what_if` are all edits there would be if the policies in
    shadow were enforced, `shadow` those of them that are not made; `shadow_refusal`: or they would refuse it.
    `summary` is the record of older turns that is sent; `wanted` is one that the plan would use, or will; `resting` one
    to be made if the session is about to be forgotten.
    """

    edits: tuple[Edit, ...]
    original_tokens: int
    sent_tokens: int
    memory: Memory
    reasons: tuple[Reason, ...] = ()
    cached_tokens: int = 0
    again_tokens: int = 0
    refilled: bool = False
    reply_tokens: int | None = None
    what_if: tuple[Edit, ...] = ()
    what_if_tokens: int = 0
    shadow: tuple[Edit, ...] = ()
    shadow_reasons: tuple[Reason, ...] = ()
    shadow_refusal: Refuse | None = None
    summary: Summary | None = None
    wanted: Wanted | None = None
    resting: Wanted | None = None


class _State(msgspec.Struct, frozen=True):
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
    rendered: Render
    ages: Ages


class _Lane(msgspec.Struct, frozen=True):
    """What some of the policies make of a conversation: the draft with the edits in force, and what comes of it."""

    before: Draft
    draft: Draft
    edits: tuple[Edit, ...]
    reasons: tuple[Reason, ...]
    in_force: InForce


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
    rendered: Render = render,
    now_seconds: float | None = None,
) -> Plan | Refuse:
    """The edits that `policies` ask for, or `Refuse` where the prompt stays too long.

    `count` gives the tokens of a text. The first `known_messages` have been sent before, edited or not: they change
    only in a step. With `cold` the engine holds none of the prompt, so everything is decided anew. The session was last
    used `idle_seconds` ago; `reply_tokens` were asked for (`max_tokens`; None: no bound). With `pricing` (economic) a
    step that does not pay is put off unless a limit forces it; without (strict) the marks alone decide. `automatic` is
    what must be repaired in any case, whatever is remembered. Originals are named as far as `keeping` allows; without
    it none is. `records` are those of older turns, by their names; `rendered` carries a trim out that was made before.
    `now_seconds` is the time since 1970, for what goes by age.
    """
    before, known = (EMPTY, 0) if cold else (memory, known_messages)
    ages = _ages(policies, memory.seen, len(conversation.messages), now_seconds)
    state = _State(count, known, cold, idle_seconds, pricing, reply_tokens, automatic, keeping, records, rendered, ages)
    enforced = [policy for policy in policies if policy.mode == "enforce"]
    lane = _lane(conversation, enforced, before.enforced, state)
    refusal = _refusal(enforced, lane.draft.total_tokens, reply_tokens)
    if refusal is not None:
        return refusal.wanting(lane.draft.wanted)
    first = first_change(lane.before, lane.draft)
    done = Plan(
        lane.edits,
        conversation.total_tokens,
        lane.draft.total_tokens,
        Memory(lane.in_force, seen=ages.seen),
        reasons=lane.reasons,
        cached_tokens=lane.draft.total_tokens - lane.draft.tokens_between(first, len(conversation.messages)),
        again_tokens=lane.draft.tokens_between(first, known),
        refilled=_refilled(before.enforced.cut, lane.in_force.cut),
        reply_tokens=_clamped(enforced, lane.draft.total_tokens, reply_tokens),
        summary=lane.draft.summary,
        wanted=lane.draft.wanted,
        resting=_resting(enforced, lane.draft),
    )
    if len(enforced) < len(policies):
        done = _with_shadow(done, _lane(conversation, policies, before.shadow, state))
        what_if = _refusal(policies, done.what_if_tokens, reply_tokens)
        done = replace(done, shadow_refusal=what_if)
    same = next((known for known in (memory, EMPTY) if known == done.memory), done.memory)
    return replace(done, memory=same)


def _with_shadow(done: Plan, lane: _Lane) -> Plan:
    sent = set(done.edits)
    more = [(edit, reason) for edit, reason in zip(lane.edits, lane.reasons, strict=True) if edit not in sent]
    return replace(
        done,
        memory=replace(done.memory, shadow=lane.in_force),
        what_if=lane.edits,
        what_if_tokens=lane.draft.total_tokens,
        shadow=tuple(edit for edit, _ in more),
        shadow_reasons=tuple(reason for _, reason in more),
    )


def _ages(policies: Sequence[Policy], seen: Sequence[Seen], messages: int, now_seconds: float | None) -> Ages:
    """Since when the messages are there, if a policy asks and it is known what time it is."""
    asked = [p.older_than_seconds for p in policies if isinstance(p, DropStaleTurns) and p.older_than_seconds]
    if not asked or now_seconds is None:
        return Ages()
    return Ages(noted(seen, messages, now_seconds, max(asked)), now_seconds)


def _refilled(before: Cut | None, now: Cut | None) -> bool:
    if before is None or now is None or now.at <= before.at:
        return False
    return now.turns - before.turns <= THRASH_TURNS


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


def _lane(conversation: Conversation, policies: Sequence[Policy], in_force: InForce, state: _State) -> _Lane:
    """What the policies make of the conversation."""
    standing, remembered = _standing(policies, in_force)
    if state.automatic is not None:
        standing = (*standing, state.automatic)
    frame = framed(conversation, standing)
    before = draft = replayed(frame, in_force, state.known, state.cold, state.keeping, state.records, state.rendered)
    limit = _limit(policies, state.reply_tokens)
    for _ in range(ROUNDS):
        spoken = _spoken(replace(draft, dues=()) if draft.dues else draft, policies, limit, state)
        last, draft = draft, _settled(spoken, limit, state.pricing)
        # After a step those who spoke first may have more to say: what went had copies, what was due is free.
        if draft == last or (draft is spoken and not draft.open):
            break
    made = edits(draft)
    kept = outcome.in_force(draft, remembered, in_force) if made else InForce(ahead=ahead(draft))
    return _Lane(before, draft, made, reasons(before, draft, made), kept)


def _spoken(draft: Draft, policies: Sequence[Policy], limit: int | None, state: _State) -> Draft:
    for policy in policies:
        match policy:
            case TrimToolOutput() | DedupeToolOutput():
                draft = policy.revise(draft, state.count, state.keeping)
            case KeepRecentTurns() | KeepRecentTokens():
                draft = policy.revise(draft, limit, state.pricing)
            case SummarizeOlderTurns():
                draft = policy.revise(draft, limit, state.pricing, state.count, state.records, state.idle_seconds)
            case ClearOldReasoning():
                draft = policy.revise(draft)
            case DropStaleTurns():
                draft = policy.revise(draft, state.idle_seconds, state.ages)
            case _:
                pass
    return draft


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
        return draft.stepped(step="limit")
    start = best_start(draft, pricing) if pricing else None
    return draft if start is None else draft.stepped(start, "gain")


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
