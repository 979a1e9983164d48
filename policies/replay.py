"""The edits in force made again, before any policy speaks.

Rule: to the same bytes, with no counting, whatever the policies say now; what no longer fits this conversation is
forgotten, and a handle that may not be shown any more is left out.
"""

from collections.abc import Container, Iterator, Mapping, Sequence

from msgspec.structs import replace

from policies.copies import Copy
from policies.covering import Cover
from policies.draft import Draft
from policies.frame import Frame
from policies.keeping import NOTHING, Keeping
from policies.memory import Cut, InForce, Recorded, Trim
from policies.noting import with_note_again
from policies.summary import NO_RECORDS, Ahead, facts, standing_for, summarized
from policies.trimmed import Trimmed
from policies.trimmed_text import Render, render


def replayed(
    frame: Frame,
    in_force: InForce,
    known: int,
    cold: bool,
    keeping: Keeping = NOTHING,
    records: Mapping[bytes, str] = NO_RECORDS,
    rendered: Render = render,
) -> Draft:
    """A draft with the edits in force, as far as they concern this conversation; `records` are by name."""
    draft = Draft(frame, known, cold, step="cold" if cold else "")
    if in_force.summary is not None:
        draft = _with_record(draft, in_force.summary, records, keeping)
    if in_force.ahead is not None and (cover := _cover(frame, in_force.ahead)) is not None:
        draft = replace(draft, ahead=Ahead(cover, in_force.ahead.key))
    if in_force.cut and _holds(frame, in_force.cut):
        # An answer that came late to a call already dropped brings the call back.
        allowed = (start for start in frame.borders if start <= in_force.cut.at)
        keeps = in_force.cut.note_tokens > 0
        draft = draft.with_cut(max(allowed, default=0), in_force.cut.policy, keeps=keeps)
        draft = with_note_again(draft, keeping, in_force.cut.note_tokens) if keeps else draft
    if in_force.cleared and _holds(frame, in_force.cleared):
        draft = draft.with_cleared(in_force.cleared.at)
    trims = [_held(trim, keeping) for trim in in_force.trims]
    return _with_trims(draft, trims, rendered) if trims else draft


def _held(trim: Trim, keeping: Keeping) -> Trim:
    return trim if not trim.handle or keeping.allows(trim.handle) else replace(trim, handle="")


def _holds(frame: Frame, border: Cut) -> bool:
    return border.at < len(frame.conversation.messages) and frame.prefix_digest(border.at + 1) == border.prefix


def _with_record(draft: Draft, recorded: Recorded, records: Mapping[bytes, str], keeping: Keeping) -> Draft:
    """A record whose text is lost is forgotten, and what it stood for is back."""
    if (cover := _cover(draft.frame, recorded)) is None:
        return draft
    text = records.get(recorded.key)
    if text is None and recorded.room:
        text = facts(draft.frame, cover, recorded.room)
    if not text:
        return draft
    costs = recorded.costs(standing_for(draft.frame, cover))
    kept = keeping if recorded.kept else NOTHING
    return draft.with_summary(summarized(draft.frame, cover, text, recorded.key, lambda _: costs, recorded.room, kept))


def _cover(frame: Frame, recorded: Recorded) -> Cover | None:
    """What is covered, if it still can be and is still the same."""
    found = frame.cover_at(recorded.stop)
    return found if found and frame.prefix_digest(found.stop) == recorded.prefix else None


def _with_trims(draft: Draft, trims: Sequence[Trim], rendered: Render) -> Draft:
    """A pointer is made again only while there is something to point to."""
    texts = {trim.digest: trim for trim in trims if trim.form != "same"}
    pointers = {trim.digest: trim for trim in trims if trim.form == "same"}
    copied = dict(_copied(draft, pointers, texts)) if pointers else {}
    found: dict[int, Trimmed] = {}
    copies: dict[int, Copy] = {}
    messages = draft.messages
    for at in [at for at, message in enumerate(messages) if message.digest in texts or at in copied]:
        message = messages[at]
        trim = pointers[message.digest] if at in copied else texts[message.digest]
        if not draft.keeps(at) or (again := _again(message.text, trim, rendered)) is None:
            continue
        if at in copied:
            copies[at] = Copy(copied[at], again)
        else:
            found[at] = again
    return draft.with_trims(found).with_copies(copies)


def _copied(draft: Draft, pointers: Container[bytes], texts: Mapping[bytes, Trim]) -> Iterator[tuple[int, int]]:
    """Copies and the latest message before that each repeats, no copy itself; equal messages have equal digests."""
    latest: dict[tuple[str, str], int] = {}
    for at, message in enumerate(draft.messages):
        if message.role != "tool" or message.media or not draft.keeps(at):
            continue
        key = (message.name or "", message.text)
        if message.digest in pointers and key in latest:
            yield at, latest[key]
        elif message.digest not in texts or texts[message.digest].form != "superseded":
            latest[key] = at


def _again(text: str, trim: Trim, rendered: Render) -> Trimmed | None:
    try:
        return Trimmed(trim, rendered(text, trim), again=True)
    except ValueError:
        # JSON nested so deep that it parsed with a little more stack then than there is now: it is trimmed anew.
        return None
