"""Policies run over a conversation together, and what comes of it: a lane.

Rule: the edits in force are made again first, then each policy speaks in the order listed, about what the ones before
it have left. What waits for a step is done where a limit forces it, or where it pays.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from policies import caps, outcome
from policies.ages import Ages
from policies.clear_old_reasoning import ClearOldReasoning
from policies.conversation import Conversation
from policies.dedupe_tool_output import DedupeToolOutput
from policies.draft import Draft
from policies.drop_stale_turns import DropStaleTurns
from policies.edit import Edit
from policies.extract_facts import Read
from policies.keep_recent_tokens import KeepRecentTokens
from policies.keep_recent_turns import KeepRecentTurns
from policies.keeping import Keeping
from policies.memory import InForce
from policies.noting import with_note
from policies.outcome import Reason, ahead, edits, reasons
from policies.policy import Policy
from policies.pricing import Pricing, best_start
from policies.repair import Repair
from policies.replay import replayed
from policies.standing import Standing, dumps, framed, loads
from policies.summarize_older_turns import SummarizeOlderTurns
from policies.summary import Wanted
from policies.trim_search import Count
from policies.trim_tool_output import TrimToolOutput
from policies.trimmed_text import Render

ROUNDS = 4
"""How often policies speak in a step, at most; the second time they mostly have nothing to add."""


class State(msgspec.Struct, frozen=True):
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
    read: Read


class Lane(msgspec.Struct, frozen=True):
    """What some of the policies make of a conversation: the draft with the edits in force, and what comes of it."""

    before: Draft
    draft: Draft
    edits: tuple[Edit, ...]
    reasons: tuple[Reason, ...]
    in_force: InForce


def laned(conversation: Conversation, policies: Sequence[Policy], in_force: InForce, state: State) -> Lane:
    """What the policies make of the conversation."""
    standing, remembered = _standing(policies, in_force)
    if state.automatic is not None:
        standing = (*standing, state.automatic)
    frame = framed(conversation, standing, state.read)
    before = draft = replayed(frame, in_force, state.known, state.cold, state.keeping, state.records, state.rendered)
    limit = caps.prompt_limit(policies, state.reply_tokens)
    for _ in range(ROUNDS):
        spoken = _spoken(replace(draft, dues=()) if draft.dues else draft, policies, limit, state)
        last, draft = draft, with_note(_settled(spoken, limit, state.pricing), state.keeping, state.count, limit)
        # After a step those who spoke first may have more to say: what went had copies, what was due is free, and a
        # note has made it longer.
        if draft == last or (draft is spoken and not draft.open):
            break
    made = edits(draft)
    kept = outcome.in_force(draft, remembered, in_force) if made else InForce(ahead=ahead(draft))
    return Lane(before, draft, made, reasons(before, draft, made), kept)


def _spoken(draft: Draft, policies: Sequence[Policy], limit: int | None, state: State) -> Draft:
    for policy in policies:
        match policy:
            case TrimToolOutput() | DedupeToolOutput():
                draft = policy.revise(draft, state.count, state.keeping)
            case KeepRecentTurns() | KeepRecentTokens():
                draft = policy.revise(draft, limit, state.pricing)
            case SummarizeOlderTurns():
                stepping = limit, state.pricing, state.count, state.records, state.idle_seconds, state.keeping
                draft = policy.revise(draft, *stepping)
            case ClearOldReasoning():
                draft = policy.revise(draft)
            case DropStaleTurns():
                draft = policy.revise(draft, state.idle_seconds, state.ages)
            case _:
                pass
    return draft


def resting(policies: Sequence[Policy], draft: Draft) -> Wanted | None:
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
