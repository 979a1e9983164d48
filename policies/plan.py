"""A tier's policies run over one conversation.

Rule: pure and deterministic. First what is pinned and what is put right, then the edits in force are made again, then
each policy speaks in the order listed, about what the ones before it have left, and the caps judge the result. Policies
in shadow are run in a lane of their own, together with the enforced ones, so that what they would do is known exactly
and nothing of it is sent.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from policies import caps
from policies.ages import Ages, noted
from policies.cap_context import Refuse
from policies.conversation import Conversation
from policies.drop_stale_turns import DropStaleTurns
from policies.edit import Edit
from policies.extract_facts import Read, read
from policies.keeping import NOTHING, Keeping
from policies.lane import Lane, State, laned, resting
from policies.memory import EMPTY, Cut, Memory, Seen
from policies.outcome import Reason
from policies.policy import Policy
from policies.pricing import Pricing, first_change
from policies.repair import Repair
from policies.summary import NO_RECORDS, Summary, Wanted
from policies.trim_search import Count
from policies.trimmed_text import Render, render

THRASH_TURNS = 3
"""A window that moves again within so many turns frees too little, or its marks lie too close together."""

__all__ = ["Plan", "Pricing", "Refuse", "plan"]


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
    read: Read = read,
    now_seconds: float | None = None,
) -> Plan | Refuse:
    """The edits that `policies` ask for, or `Refuse` where the prompt stays too long.

    `count` gives the tokens of a text. The first `known_messages` have been sent before, edited or not: they change
    only in a step. With `cold` the engine holds none of the prompt, so everything is decided anew. The session was last
    used `idle_seconds` ago; `reply_tokens` were asked for (`max_tokens`; None: no bound). With `pricing` (economic) a
    step that does not pay is put off unless a limit forces it; without (strict) the marks alone decide. `automatic` is
    what must be repaired in any case, whatever is remembered. Originals are named as far as `keeping` allows; without
    it none is. `records` are those of older turns, by their names; `rendered` carries a trim out that was made before
    and `read` finds facts. `now_seconds` is the time since 1970, for what goes by age.
    """
    before, known = (EMPTY, 0) if cold else (memory, known_messages)
    ages = _ages(policies, memory.seen, len(conversation.messages), now_seconds)
    asked = idle_seconds, pricing, reply_tokens, automatic
    state = State(count, known, cold, *asked, keeping, records, rendered, ages, read)
    enforced = [policy for policy in policies if policy.mode == "enforce"]
    lane = laned(conversation, enforced, before.enforced, state)
    refusal = caps.refusal(enforced, lane.draft.total_tokens, reply_tokens)
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
        reply_tokens=caps.clamped(enforced, lane.draft.total_tokens, reply_tokens),
        summary=lane.draft.summary,
        wanted=lane.draft.wanted,
        resting=resting(enforced, lane.draft),
    )
    if len(enforced) < len(policies):
        done = _with_shadow(done, laned(conversation, policies, before.shadow, state))
        what_if = caps.refusal(policies, done.what_if_tokens, reply_tokens)
        done = replace(done, shadow_refusal=what_if)
    same = next((known for known in (memory, EMPTY) if known == done.memory), done.memory)
    return replace(done, memory=same)


def _with_shadow(done: Plan, lane: Lane) -> Plan:
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
