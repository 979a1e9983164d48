"""What holds after every edit, whatever policy made it.

Rule: it judges edits, not conversations. What was already wrong before (an answer without a call, a call half answered)
is no violation; making it worse is. Linear in the messages. What an edit cannot express (a new marker, a message moved)
needs no check.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise

import msgspec

from policies import json_ladder
from policies.arguments import is_object
from policies.conversation import INSTRUCTIONS, Conversation
from policies.edit import (
    AddNote,
    AddSummary,
    ClearReasoning,
    DropMessages,
    Edit,
    InsertAnswer,
    ReplaceArguments,
    ReplaceText,
)
from policies.left_out import told
from policies.record import BEGIN, END
from policies.trimmed_text import whole


class Edited(msgspec.Struct, frozen=True):
    """What the edits do, by original index; `replaced` leaves out what only mends lone surrogates."""

    before: Conversation
    gone: frozenset[int]
    replaced: Mapping[int, ReplaceText]
    mended: Mapping[int, ReplaceText]
    cleared: frozenset[int]
    arguments: tuple[ReplaceArguments, ...]
    answers: tuple[InsertAnswer, ...]
    summaries: tuple[AddSummary, ...]
    notes: tuple[AddNote, ...]
    turns: tuple[range, ...]

    def kept(self, at: int) -> bool:
        return at not in self.gone

    def thinks(self, at: int) -> bool:
        """Whether message `at` still carries its reasoning."""
        return at not in self.gone and at not in self.cleared


def edited(before: Conversation, edits: Sequence[Edit]) -> Edited:
    texts = {edit.at: edit for edit in edits if isinstance(edit, ReplaceText)}
    mended = {at: edit for at, edit in texts.items() if edit.text == whole(before.messages[at].text)}
    return Edited(
        before=before,
        gone=frozenset(at for edit in edits if isinstance(edit, DropMessages) for at in range(edit.start, edit.stop)),
        replaced={at: edit for at, edit in texts.items() if at not in mended},
        mended=mended,
        cleared=frozenset(edit.at for edit in edits if isinstance(edit, ClearReasoning)),
        arguments=tuple(edit for edit in edits if isinstance(edit, ReplaceArguments)),
        answers=tuple(edit for edit in edits if isinstance(edit, InsertAnswer)),
        summaries=tuple(edit for edit in edits if isinstance(edit, AddSummary)),
        notes=tuple(edit for edit in edits if isinstance(edit, AddNote)),
        turns=before.turns(),
    )


def _instructions(edited: Edited) -> Iterator[int]:
    """They stay; lines of them may be stripped, but not all."""
    for at in edited.before.instructions:
        message = edited.before.messages[at]
        if at in edited.gone or (at in edited.replaced and not _is_rest(message.text, edited.replaced[at].text)):
            yield at


def _is_rest(text: str, rest: str) -> bool:
    """Whether `rest` is what is left of `text` without some of its lines."""
    lines = iter(whole(text).split("\n"))
    return bool(rest) and all(line in lines for line in rest.split("\n"))


def _task(edited: Edited) -> Iterator[int]:
    if edited.turns and (first := edited.turns[0].start) in edited.gone | edited.replaced.keys():
        yield first


def _last_user(edited: Edited) -> Iterator[int]:
    roles = edited.before.roles
    last = next((at for at in range(len(roles) - 1, -1, -1) if roles[at] == "user"), None)
    if last is not None and (last in edited.gone or last in edited.replaced):
        yield last


def _groups(edited: Edited) -> Iterator[int]:
    for group in edited.before.groups() if edited.gone else ():
        if len({edited.kept(at) for at in group}) == 2:
            yield group[0]


def _reasoning(edited: Edited) -> Iterator[int]:
    """Untouched in the turn under way; of an older turn all or nothing; nowhere rewritten."""
    messages = edited.before.messages
    clearable: set[int] = set()
    for turn in edited.turns if edited.before.thinks else ():
        thinking = [at for at in turn if messages[at].reasoning]
        kept = sum(edited.thinks(at) for at in thinking)
        if 0 < kept < len(thinking) or (turn is edited.turns[-1] and kept < len(thinking)):
            yield thinking[0]
        yield from (at for at in thinking if at in edited.replaced)
        clearable.update(thinking)
    yield from edited.cleared - clearable


def _unanswered(edited: Edited) -> Iterator[int]:
    """What the model has not answered yet stays, images above all, before an answer that it has begun too."""
    for at in range(len(edited.before.messages) - 1, edited.before.answered - 1, -1) if edited.gone else ():
        if at in edited.gone:
            yield at


def _media(edited: Edited) -> Iterator[int]:
    yield from (at for at in edited.replaced.keys() | edited.mended.keys() if edited.before.messages[at].media)


def _ending(edited: Edited) -> Iterator[int]:
    last = len(edited.before.messages) - 1
    if last in edited.gone:
        yield last


def _json(edited: Edited) -> Iterator[int]:
    for at, edit in edited.replaced.items():
        # What is sent is the shorter one, and mostly JSON: then it does not matter what it was.
        if not _is_json(edit.text) and _is_json(edited.before.messages[at].text):
            yield at


def _is_json(text: str) -> bool:
    if text.lstrip()[:1] not in ("{", "[", '"'):
        return False
    return json_ladder.is_json(text)


def _characters(edited: Edited) -> Iterator[int]:
    texts = [(at, edit.text) for at, edit in edited.replaced.items()]
    texts += [(edit.at, edit.text) for edit in edited.answers]
    texts += [(edit.at, edit.arguments) for edit in edited.arguments]
    texts += [(edit.at, edit.text) for edit in edited.summaries]
    texts += [(edit.at, edit.text) for edit in edited.notes]
    yield from (at for at, text in texts if whole(text) is not text)


def _arguments(edited: Edited) -> Iterator[int]:
    """What is sent as arguments is an object, and arguments that are one already stay."""
    for edit in edited.arguments:
        calls = edited.before.messages[edit.at].calls
        if edit.call >= len(calls) or not is_object(edit.arguments):
            yield edit.at
            continue
        sent = calls[edit.call].arguments
        if is_object(sent) and whole(sent) is sent:
            yield edit.at


def _answers(edited: Edited) -> Iterator[int]:
    """An answer is added only behind its group, to a call of it that has none."""
    if not edited.answers:
        return
    messages = edited.before.messages
    group_of = {at: group for group in edited.before.groups() for at in group}
    taken: set[tuple[int, str]] = set()
    for edit in edited.answers:
        caller, *others = group_of.get(edit.at, (edit.at,))
        answered = {(messages[at].answers or "").strip() for at in others}
        called, call = {call.id.strip() for call in messages[caller].calls}, edit.call_id.strip()
        if call not in called - answered or (caller, call) in taken:
            yield edit.at
        taken.add((caller, call))


def _alternation(edited: Edited) -> Iterator[int]:
    """No two user or assistant messages come to stand side by side that did not before; a user still comes first."""
    if not edited.gone:
        return
    messages = edited.before.messages
    spoken = [at for at, message in enumerate(messages) if message.role not in INSTRUCTIONS]
    neighbours = set(pairwise(spoken))
    kept = [at for at in spoken if edited.kept(at)]
    parted = {edit.at for edit in edited.answers}
    for one, two in pairwise(kept):
        if one in parted or (one, two) in neighbours:
            continue
        if messages[one].role == messages[two].role != "tool":
            yield two
    if spoken and messages[spoken[0]].role == "user" and (not kept or messages[kept[0]].role != "user"):
        yield spoken[0]


def _summaries(edited: Edited) -> Iterator[int]:
    """One at most, framed as data, behind the task; what follows is an assistant's; shorter than what is left out."""
    messages = edited.before.messages
    for number, edit in enumerate(edited.summaries):
        spared = sum(messages[at].tokens for at in edited.gone if at > edit.at)
        follows = next(
            (
                at
                for at in range(edit.at + 1, len(messages))
                if edited.kept(at) and messages[at].role not in INSTRUCTIONS
            ),
            edit.at,
        )
        behind_task = edit.at in edited.turns[0] and messages[edit.at].role == "user" if edited.turns else False
        framed = edit.text.count(BEGIN) == 1 and edit.text.rstrip().endswith(END) and edit.text.count(END) == 1
        nested = BEGIN in messages[edit.at].text
        short = spared > -edit.removed_tokens
        if number or not (behind_task and framed and short and messages[follows].role == "assistant") or nested:
            yield edit.at


def _notes(edited: Edited) -> Iterator[int]:
    """One at most, behind the task, about messages that are left out behind it, and shorter than they are."""
    messages = edited.before.messages
    for number, edit in enumerate(edited.notes):
        behind_task = edit.at in edited.turns[0] and messages[edit.at].role == "user" if edited.turns else False
        true = edit.text == told(len(edit.messages), edit.handle) and bool(edit.handle)
        gone = bool(edit.messages) and edited.gone.issuperset(edit.messages)
        short = sum(messages[at].tokens for at in edit.messages if at < len(messages)) > -edit.removed_tokens
        if number or not (behind_task and true and gone and short):
            yield edit.at
    for summary in edited.summaries:
        named = summary.handle in summary.text and edited.gone.issuperset(summary.messages)
        if summary.handle and not (named and summary.messages):
            yield summary.at


RULES: dict[str, Callable[[Edited], Iterator[int]]] = {
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
    "arguments are a JSON object": _arguments,
    "an answer is added only where one is missing": _answers,
    "one summary, framed, behind the task, shorter than what it replaces": _summaries,
    "a handle of messages left out names those that are, behind the task": _notes,
}
