"""The note of a window: under which handle the messages that it leaves out are kept.

Rule: it stands behind the task, where it never moves, and only where it costs less than what is left out and no limit
is passed by it. A record of older turns names what it stands for itself, so the note is about the others.
"""

from msgspec.structs import replace

from policies.draft import Draft
from policies.keeping import Keeping
from policies.left_out import Note, may_be_kept, told
from policies.trim_search import Count


def with_note(draft: Draft, keeping: Keeping, count: Count, limit_tokens: int | None) -> Draft:
    """`draft` with a note where its window has moved and what falls out is to be kept."""
    if draft.note is not None or not draft.cut_keeps or (at := draft.frame.task) is None:
        return draft
    gone = _gone(draft)
    messages = [draft.messages[each] for each in gone]
    if at in draft.frame.untouched or not gone or not may_be_kept(messages):
        return draft
    handle = keeping.handle_of_messages([message.digest for message in messages])
    text = told(len(gone), handle)
    tokens = max(1, count(text)) if handle else 0
    total = draft.total_tokens + tokens
    fits = limit_tokens is None or total <= limit_tokens or draft.total_tokens > limit_tokens
    if not handle or not fits or tokens >= sum(message.tokens for message in messages):
        return draft
    return replace(draft, note=Note(at, handle, gone, text, tokens))


def with_note_again(draft: Draft, keeping: Keeping, tokens: int) -> Draft:
    """`draft` with the note in force, which cost `tokens`; without it where its handle may not be shown any more, or
    where an answer that came late has brought so much back that the rest is shorter than the note."""
    at, gone = draft.frame.task, _gone(draft)
    messages = [draft.messages[each] for each in gone]
    if at is None or sum([message.tokens for message in messages]) <= tokens:
        return draft
    handle = keeping.handle_of_messages([message.digest for message in messages])
    if not handle:
        return draft
    return replace(draft, note=Note(at, handle, gone, told(len(gone), handle), tokens))


def _gone(draft: Draft) -> tuple[int, ...]:
    """What the window leaves out, but for what a record stands for."""
    pinned = draft.pinned
    return tuple([at for at in range(draft.summarized, draft.cut) if at not in pinned])
