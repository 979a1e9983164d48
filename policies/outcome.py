"""What comes of a draft: edits over the original, and what to remember of them.

Rule: the edits stand in the order of the messages, and what is remembered is all it takes to make them again.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec.structs import replace

from policies import window
from policies.draft import Draft, Step
from policies.edit import AddNote, AddSummary, ClearReasoning, DropMessages, Edit, ReplaceText
from policies.memory import Cut, InForce, Recorded, Trim
from policies.summary import SUMMARIZE, left_out

Reason = Literal["again", "rule", "arrival"] | Step
"""Why an edit is made: it was made before, it always is, the message has just arrived, or a step is being taken."""

CLEAR = "clear_old_reasoning"
REPAIR = "repair"


def edits(draft: Draft) -> tuple[Edit, ...]:
    """The edits over the original."""
    calls = draft.frame.mends.calls
    found: list[Edit] = [*_drops(draft), *_texts(draft), *_clears(draft)]
    found += (edit for at in sorted(calls) if draft.keeps(at) for edit in calls[at])
    found += _summaries(draft)
    found += _notes(draft)
    found.sort(key=lambda edit: edit.start if isinstance(edit, DropMessages) else edit.at)
    return tuple(found)


def reasons(before: Draft, draft: Draft, edits: Sequence[Edit]) -> tuple[Reason, ...]:
    """Why each of the edits of a draft is made; `before` is the draft with the edits in force alone."""
    return tuple(_reason(before, draft, edit) for edit in edits)


def _reason(before: Draft, draft: Draft, edit: Edit) -> Reason:
    step = draft.step or "mark"
    match edit:
        case ReplaceText() if edit.policy not in ("strip", REPAIR):
            if (done := draft.text_of(edit.at)) is not None and done is before.text_of(edit.at):
                return "again"
            return "arrival" if edit.at >= draft.known and step != "cold" else step
        case DropMessages() if edit.policy != REPAIR:
            return "again" if (draft.cut, draft.summary) == (before.cut, before.summary) else step
        case AddSummary():
            return "again" if draft.summary == before.summary else step
        case AddNote():
            return "again" if draft.note == before.note else step
        case ClearReasoning():
            return "again" if edit.at in before.cleared_messages else step
        case _:
            return "rule"


def in_force(draft: Draft, standing: str, before: InForce) -> InForce:
    """What must be remembered to make the edits of a draft again that has any.

    `standing`: the rules in force; `before`: what was remembered, of which a border that did not move is kept.
    """
    # Messages of the same bytes may be an original and its copy: one digest, two trims.
    trims = {(trim.digest, trim.form == "same"): trim for trim in _trims(draft)}
    clears = bool(draft.cleared) and any(draft.keeps(at) for at in draft.cleared_messages)
    # What a summary covers is no window's: if its text is lost, so is the reason to leave the messages out.
    return InForce(
        trims=tuple(trims.values()),
        cut=_border(draft, draft.cut, draft.cut_policy, before.cut) if draft.cut > draft.summarized else None,
        cleared=_border(draft, draft.cleared, CLEAR, before.cleared) if clears else None,
        standing=standing,
        summary=_recorded(draft),
        ahead=ahead(draft),
    )


def ahead(draft: Draft) -> Recorded | None:
    """The record that was asked for, as it is remembered, while it could still be used."""
    if draft.ahead is None or (stop := draft.ahead.cover.stop) <= max(draft.summarized, draft.cut):
        return None
    return Recorded(stop, draft.frame.prefix_digest(stop), draft.ahead.key)


def _recorded(draft: Draft) -> Recorded | None:
    if (summary := draft.summary) is None:
        return None
    stop, prefix = summary.cover.stop, draft.frame.prefix_digest(summary.cover.stop)
    kept = bool(summary.handle)
    return Recorded(stop, prefix, summary.key, summary.tokens, summary.room, summary.of_tokens, kept)


def _summaries(draft: Draft) -> Iterator[AddSummary]:
    if (summary := draft.summary) is not None:
        at, handle = summary.cover.at, summary.handle
        gone = tuple(left_out(summary.cover, draft.frame.head)) if handle else ()
        yield AddSummary(SUMMARIZE, at, draft.messages[at].digest, summary.text, -summary.tokens, handle, gone)


def _notes(draft: Draft) -> Iterator[AddNote]:
    if (note := draft.note) is not None:
        digest = draft.messages[note.at].digest
        yield AddNote(draft.cut_policy, note.at, digest, note.text, -note.tokens, note.handle, note.messages)


def _drops(draft: Draft) -> Iterator[DropMessages]:
    for gone in window.dropped(draft.cut, draft.pinned):
        yield _drop(draft, SUMMARIZE if gone.start < draft.summarized else draft.cut_policy, gone)
    for gone in window.runs(sorted(at for at in draft.frame.mends.orphans if draft.in_window(at))):
        yield _drop(draft, REPAIR, gone)


def _drop(draft: Draft, policy: str, gone: range) -> DropMessages:
    tokens = sum(draft.messages[at].tokens for at in gone)
    return DropMessages(policy, gone.start, gone.stop, draft.messages[gone.stop].digest, tokens)


def _texts(draft: Draft) -> Iterator[ReplaceText]:
    mended = draft.frame.mends.texts
    for at in sorted(draft.trimmed.keys() | draft.copies.keys() | mended.keys()):
        if not draft.keeps(at):
            continue
        if (done := draft.text_of(at)) is None:
            yield mended[at]
        else:
            yield ReplaceText(done.policy, at, done.trim.digest, done.text, draft.removed_tokens(at), done.trim.handle)


def _clears(draft: Draft) -> Iterator[ClearReasoning]:
    for at in sorted(draft.cleared_messages):
        if draft.keeps(at):
            message = draft.messages[at]
            yield ClearReasoning(CLEAR, at, message.digest, message.reasoning_tokens)


def _trims(draft: Draft) -> Iterator[Trim]:
    for at in sorted(draft.trimmed.keys() | draft.copies.keys()):
        if draft.keeps(at) and (done := draft.text_of(at)) is not None:
            yield done.trim


def _border(draft: Draft, at: int, policy: str, before: Cut | None) -> Cut:
    turns = len(draft.frame.conversation.turns())
    noted = draft.note.tokens if draft.note is not None and at == draft.cut else 0
    drawn = Cut(at, draft.frame.prefix_digest(at + 1), policy, turns, noted)
    return before if before is not None and replace(before, turns=turns) == drawn else drawn
