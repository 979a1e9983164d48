"""The invariants of every edit, in one place: used by the tests and, in shadow, in production.

Rule: it judges edits, not conversations. What was already wrong before (an answer without a call, a call half answered)
is no violation; making it worse is. Linear in the messages. What an edit cannot express (a new marker, a changed call,
a message moved or added) needs no check.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from policies import json_ladder
from policies.conversation import INSTRUCTIONS, Conversation
from policies.edit import DropMessages, Edit, ReplaceText


@dataclass(frozen=True, slots=True)
class Violation:
    """Rule `rule` is broken at message `at` of the original."""

    rule: str
    at: int


@dataclass(frozen=True, slots=True)
class _Edited:
    """What the edits do, by original index."""

    before: Conversation
    gone: frozenset[int]
    replaced: dict[int, ReplaceText]
    turns: tuple[range, ...]

    def kept(self, at: int) -> bool:
        return at not in self.gone


def violations(before: Conversation, edits: Sequence[Edit]) -> tuple[Violation, ...]:
    """Every invariant that `edits` would break on `before`; edits that do not even fit it are all that is told then."""
    misfits = tuple(_misfits(before, edits))
    if misfits:
        return misfits
    drops = (edit for edit in edits if isinstance(edit, DropMessages))
    gone = frozenset(at for edit in drops for at in range(edit.start, edit.stop))
    replaced = {edit.at: edit for edit in edits if isinstance(edit, ReplaceText)}
    edited = _Edited(before, gone, replaced, before.turns())
    return tuple(Violation(rule, at) for rule, check in RULES.items() for at in check(edited))


def _misfits(before: Conversation, edits: Sequence[Edit]) -> Iterator[Violation]:
    """Edits out of range, out of order, over one another, for another message, or that save nothing."""
    messages, free = before.messages, 0
    for edit in edits:
        start, stop = (edit.start, edit.stop) if isinstance(edit, DropMessages) else (edit.at, edit.at + 1)
        named = stop if isinstance(edit, DropMessages) else start
        if not free <= start < stop <= len(messages) or named >= len(messages):
            yield Violation("edits lie in order within the conversation", start)
            return
        if messages[named].digest != edit.digest:
            yield Violation("an edit names the message it was made for", start)
        if not 0 < edit.removed_tokens <= sum(message.tokens for message in messages[start:stop]):
            yield Violation("an edit makes the prompt shorter", start)
        free = stop


def _instructions(edited: _Edited) -> Iterator[int]:
    for at, message in enumerate(edited.before.messages):
        if message.role in INSTRUCTIONS and (at in edited.gone or at in edited.replaced):
            yield at


def _task(edited: _Edited) -> Iterator[int]:
    if edited.turns and (first := edited.turns[0].start) in edited.gone | edited.replaced.keys():
        yield first


def _last_user(edited: _Edited) -> Iterator[int]:
    messages = edited.before.messages
    last = max((at for at, message in enumerate(messages) if message.role == "user"), default=None)
    if last is not None and (last in edited.gone or last in edited.replaced):
        yield last


def _groups(edited: _Edited) -> Iterator[int]:
    for group in edited.before.groups():
        if len({edited.kept(at) for at in group}) == 2:
            yield group[0]


def _reasoning(edited: _Edited) -> Iterator[int]:
    """Untouched in the turn under way; of an older turn all or nothing; nowhere rewritten."""
    messages = edited.before.messages
    for turn in edited.turns:
        thinking = [at for at in turn if messages[at].reasoning]
        kept = sum(edited.kept(at) for at in thinking)
        if 0 < kept < len(thinking) or (turn is edited.turns[-1] and kept < len(thinking)):
            yield thinking[0]
        yield from (at for at in thinking if at in edited.replaced)


def _unanswered(edited: _Edited) -> Iterator[int]:
    """What the model has not answered yet stays, images above all."""
    messages = edited.before.messages
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role == "assistant":
            return
        if at in edited.gone:
            yield at


def _media(edited: _Edited) -> Iterator[int]:
    yield from (at for at in edited.replaced if edited.before.messages[at].media)


def _ending(edited: _Edited) -> Iterator[int]:
    last = len(edited.before.messages) - 1
    if last in edited.gone:
        yield last


def _json(edited: _Edited) -> Iterator[int]:
    for at, edit in edited.replaced.items():
        if _is_json(edited.before.messages[at].text) and not _is_json(edit.text):
            yield at


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return False
    try:
        json_ladder.parse(text)
    except ValueError:
        return False
    return True


def _characters(edited: _Edited) -> Iterator[int]:
    for at, edit in edited.replaced.items():
        if any("\ud800" <= character <= "\udfff" for character in edit.text):
            yield at


def _alternation(edited: _Edited) -> Iterator[int]:
    """No two user or assistant messages come to stand side by side that did not before; a user still comes first."""
    messages = edited.before.messages
    spoken = [at for at, message in enumerate(messages) if message.role not in INSTRUCTIONS]
    neighbours = set(pairwise(spoken))
    kept = [at for at in spoken if edited.kept(at)]
    for one, two in pairwise(kept):
        if messages[one].role == messages[two].role != "tool" and (one, two) not in neighbours:
            yield two
    if spoken and messages[spoken[0]].role == "user" and (not kept or messages[kept[0]].role != "user"):
        yield spoken[0]


RULES: dict[str, Callable[[_Edited], Iterator[int]]] = {
    "system and developer messages stay": _instructions,
    "the first user message stays": _task,
    "the last user message stays verbatim": _last_user,
    "a call and its answers stay or go as one": _groups,
    "reasoning goes by whole turns, never in the turn under way": _reasoning,
    "what is not answered yet stays": _unanswered,
    "a message with media is not rewritten": _media,
    "the last message stays": _ending,
    "JSON stays JSON": _json,
    "no lone surrogate leaves": _characters,
    "user and assistant still alternate": _alternation,
}
