"""Tool outputs that say again what was said: a repeat points to the first, an outdated reading is left out.

Rule: the earlier copy stays and the later one points to it, so the prefix stays. An output that a later one of the same
call has superseded changes what was sent, so it waits for a step.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Literal

from msgspec.structs import replace
from pydantic import BaseModel, ConfigDict, Field

from policies.arguments import mended
from policies.conversation import Message
from policies.copies import Copy
from policies.draft import Draft, Due
from policies.keeping import NOTHING, Keeping, KeepSeconds
from policies.memory import Form, Trim
from policies.trim_search import Count
from policies.trim_tool_output import TEMPLATE_TOKENS, Tools
from policies.trimmed import Trimmed
from policies.trimmed_text import render


class DedupeToolOutput(BaseModel):
    """Outputs from `min_tokens` on, of the same tool. `superseded: false` leaves outdated readings alone.

    With `keep_original_seconds` an outdated one is kept so long after it was last asked for, and the text names it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

    kind: Literal["dedupe_tool_output"] = "dedupe_tool_output"
    mode: Literal["enforce", "shadow"] = "enforce"
    min_tokens: Annotated[int, Field(ge=64)] = 200
    tools: Tools = Tools()
    superseded: bool = True
    keep_original_seconds: KeepSeconds = 0.0

    def revise(self, draft: Draft, count: Count, keeping: Keeping = NOTHING) -> Draft:
        """`draft` with repeats that have just arrived replaced; those sent before, and outdated outputs, wait."""
        messages, least = draft.messages, self.min_tokens
        long = [at for at in draft.frame.conversation.outputs if messages[at].tokens >= least]
        covered = [at for at in long if draft.keeps(at) and self.tools.cover(messages[at].name or "")]
        repeats = dict(_repeats(draft, covered))
        arrived = {at: head for at, head in repeats.items() if draft.is_free(at)}
        sent = {at: head for at, head in repeats.items() if at not in arrived and at not in draft.heads}
        draft = self._deduped(draft, arrived, count)
        draft = draft.propose(
            Due(_savings(draft, sent), lambda now, start: self._deduped(now, _from(sent, start), count))
        )
        outdated = dict(_outdated(draft, covered)) if self.superseded else {}
        kept = keeping if self.keep_original_seconds else NOTHING
        return draft.propose(
            Due(_savings(draft, outdated), lambda now, start: _outdone(now, _from(outdated, start), count, kept))
        )

    def may_act(self, largest_message_bytes: int) -> bool:
        """Whether a message of so many bytes could be long enough (a token is at least a byte)."""
        return largest_message_bytes >= self.min_tokens

    def _deduped(self, draft: Draft, repeats: Mapping[int, int], count: Count) -> Draft:
        """With pointers where they are shorter; a head may have gone since the repeats were found."""
        found: dict[int, Copy] = {}
        for at, head in repeats.items():
            if at in draft.heads or _is_pointer(draft, at) or not (draft.keeps(at) and draft.keeps(head)):
                continue
            if _is_pointer(draft, head) or _left_by_age(draft, head) != _left_by_age(draft, at):
                continue
            if (pointer := _pointer(draft, at, "same", count)) is not None:
                found[at] = Copy(head, pointer)
        return draft.with_copies(found)


def _repeats(draft: Draft, covered: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Outputs that an earlier one equals, and which; of those cut for their age, what is left must be the same."""
    first: dict[tuple[str, str, str], int] = {}
    sizes = Counter([len(draft.messages[at].text) for at in covered])
    for at in covered:
        message = draft.messages[at]
        if sizes[len(message.text)] < 2 or _is_pointer(draft, at):
            continue
        head = first.setdefault((message.name or "", message.text, _left_by_age(draft, at)), at)
        if head != at and at not in draft.frame.untouched:
            yield at, head


def _outdated(draft: Draft, covered: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Outputs of a call that a later message made again, and its latest output; none that must stay.

    Calls of one message are made side by side: none is the later one. A short output (an error, a mere "unchanged")
    supersedes nothing.
    """
    if len(covered) < 2:
        return
    latest: dict[tuple[str, str], int] = {}
    called = draft.frame.called(covered)
    for at in reversed(covered):
        if at not in called:
            continue
        caller, call = called[at]
        later = latest.setdefault((call.name, _same(call.arguments)), at)
        if later == at or called[later].caller == caller or at in draft.pinned or at in draft.frame.untouched:
            continue
        if at in draft.copies or not _is_pointer(draft, at):
            yield at, later


def _same(arguments: str) -> str:
    """What calls that ask for the same have in common; what looks like an object need not be read for that."""
    return arguments if arguments[:1] == "{" and arguments.isascii() else mended(arguments)


def _outdone(draft: Draft, outdated: Mapping[int, int], count: Count, keeping: Keeping) -> Draft:
    """With outdated outputs left out: a copy that is not outdated stands in for its head, others go with it."""
    old = [at for at in outdated if draft.keeps(at)]
    heads = [at for at in old if at not in draft.copies]
    first = {at: pointer for at in heads if (pointer := _pointer(draft, at, "superseded", count, keeping))}
    done = draft.with_late_trims(first, lambda at: at not in outdated)
    left = [at for at in old if at in done.copies and done.copies[at].head in first]
    rest = {at: pointer for at in left if (pointer := _pointer(draft, at, "superseded", count, keeping))}
    return done.with_late_trims(rest, lambda at: False)


def _is_pointer(draft: Draft, at: int) -> bool:
    done = draft.texts.get(at)
    return done is not None and done.trim.form in ("same", "superseded")


def _left_by_age(draft: Draft, at: int) -> str:
    """What is sent of an output that was cut for its age: a fresh copy says more, and does not point to it."""
    done = draft.texts.get(at)
    return done.text if done is not None and done.trim.late else ""


def _pointer(draft: Draft, at: int, form: Form, count: Count, keeping: Keeping = NOTHING) -> Trimmed | None:
    """What stands for the output, if it is shorter than what is sent now; one pointer may stand for another."""
    message: Message = draft.messages[at]
    trim = Trim(message.digest, form, message.tokens, 0, handle=keeping.handle_of(message.text))
    text = render(message.text, trim)
    removed = message.tokens - count(text) - TEMPLATE_TOKENS
    floor = 0 if at in draft.copies else draft.removed_tokens(at)
    if removed <= floor or len(text) >= len(message.text):
        return None
    return Trimmed(replace(trim, removed_tokens=removed), text)


def _savings(draft: Draft, found: Mapping[int, int]) -> tuple[tuple[int, int], ...]:
    return tuple((at, draft.output_tokens(at)) for at in found)


def _from(found: Mapping[int, int], start: int) -> Mapping[int, int]:
    return {at: other for at, other in found.items() if at >= start}
