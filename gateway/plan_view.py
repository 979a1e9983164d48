"""A plan as people and programs read it: what goes and why, what is left, and what that is predicted to bring.

Rule: nothing here decides. Predictions come from the cost model that routes and prices calls, and are given against
the same call without any edit. Texts are shown by a few lines each; a handle of an original is never shown, for what is
not sent is not kept.
"""

from collections.abc import Iterator, Sequence
from itertools import islice

import msgspec

from budgets.cost import kv_read_bytes
from budgets.geometry import Geometry
from gateway.context import Planned
from gateway.pace import Pace
from policies.conversation import Message
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
from policies.outcome import Reason
from policies.summary import Wanted

WHY: dict[str, str] = {
    "arrival": "it has just arrived",
    "again": "as on the turn before",
    "rule": "always",
    "cold": "the engine holds nothing of the prompt",
    "pause": "the session has rested",
    "age": "turns are too old",
    "mark": "a mark is passed",
    "limit": "a limit would be passed",
    "gain": "it gains more than it costs",
}
SHOWN_LINES = 3
SHOWN_CHARACTERS = 160


class EditView(msgspec.Struct, frozen=True):
    """One edit. `messages`: the first and the last that it is about, by their place in the request."""

    policy: str
    reason: str
    why: str
    what: str
    messages: tuple[int, int]
    removed_tokens: int
    diff: list[str]


class Predicted(msgspec.Struct, frozen=True):
    """What the edits bring for a reply of `decode_tokens`; what is below 0 is lost.

    `cached_tokens` of the prompt stand at the engine, `broken_tokens` would have stood there and are computed again.
    """

    decode_tokens: int
    cached_tokens: int
    broken_tokens: int
    kv_read_bytes_saved: int
    decode_seconds_saved: float
    prefill_seconds_saved: float


class PlanView(msgspec.Struct, frozen=True):
    """`counted` false: tokens are guessed from bytes, which was enough to decide.

    `summary`: the record of older turns that would be asked for.
    """

    model: str
    counted: bool
    original_tokens: int
    sent_tokens: int
    edits: list[EditView]
    shadow: list[EditView]
    max_tokens: int | None
    mended_characters: int
    predicted: Predicted | None
    summary: str | None = None
    object: str = "kvgate.plan"


def view(model: str, planned: Planned, messages: Sequence[Message], predicted: Predicted | None) -> PlanView:
    """The plan for a call with these messages."""
    made = zip(planned.edits, planned.reasons, strict=True)
    shadow = zip(planned.shadow, planned.shadow_reasons, strict=True)
    return PlanView(
        model=model,
        counted=planned.counted,
        original_tokens=planned.original_tokens,
        sent_tokens=planned.sent_tokens,
        edits=[_edit(edit, reason, messages) for edit, reason in made],
        shadow=[_edit(edit, reason, messages) for edit, reason in shadow],
        max_tokens=planned.reply_tokens,
        mended_characters=planned.mended,
        predicted=predicted,
        summary=None if planned.wanted is None else wished(planned.wanted),
    )


def wished(wanted: Wanted) -> str | None:
    """A record that would be asked for, in words."""
    if not wanted.make:
        return None
    what = f"a record of messages {wanted.cover.at + 1} to {wanted.cover.stop - 1} would be written by a model"
    when = "the high water is passed" if wanted.urgent else "ahead of need"
    return f"summarize_older_turns: {what}, {when}; it would replace {wanted.replaced_tokens} tokens"


def predict(
    planned: Planned, geometry: Geometry, pace: Pace, known_messages: int, decode_tokens: int, known_tokens: int = 0
) -> Predicted:
    """What the edits bring on one pool's hardware, against the same call as it came.

    `known_tokens`: those of the messages that were sent before by their bytes, where nothing was counted.
    """
    original, sent = planned.original_tokens, planned.sent_tokens
    tokens = planned.message_tokens
    before = original - sum(tokens[known_messages:]) if tokens and known_messages else min(sent, known_tokens)
    cached = (planned.cached_tokens if planned.counted else before) if known_messages else 0
    read = kv_read_bytes(geometry, original, decode_tokens) - kv_read_bytes(geometry, sent, decode_tokens)
    decode = pace.decode_seconds(original, decode_tokens) - pace.decode_seconds(sent, decode_tokens)
    prefill = pace.prefill_seconds(original, before) - pace.prefill_seconds(sent, min(sent, cached))
    return Predicted(decode_tokens, cached, planned.again_tokens, read, round(decode, 6), round(prefill, 6))


def lines(shown: PlanView) -> Iterator[str]:
    """The plan in words, with a few lines of each text that goes."""
    about = "" if shown.counted else "about "
    if shown.mended_characters:
        yield f"half characters replaced in {shown.mended_characters} places"
    if shown.edits:
        yield f"{about}{shown.original_tokens} tokens, {shown.sent_tokens} sent, {len(shown.edits)} edits:"
    else:
        yield f"{about}{shown.original_tokens} tokens, sent as received"
    yield from _told(shown.edits)
    if shown.shadow:
        yield f"in shadow, not applied, {len(shown.shadow)} edits:"
        yield from _told(shown.shadow)
    if shown.max_tokens is not None:
        yield f"max_tokens clamped to {shown.max_tokens}"
    if shown.summary is not None:
        yield shown.summary
    if shown.predicted is not None and shown.edits:
        yield _foretold(shown.predicted)


def _told(edits: Sequence[EditView]) -> Iterator[str]:
    for edit in edits:
        removed = edit.removed_tokens
        tokens = f"{removed} tokens removed" if removed >= 0 else f"{-removed} tokens added"
        yield f"  {edit.policy}: {edit.what}, {tokens} ({edit.why})"
        yield from (f"    {line}" for line in edit.diff)


def _foretold(predicted: Predicted) -> str:
    broken = (
        f"{predicted.broken_tokens} tokens computed again" if predicted.broken_tokens else "no cached prefix broken"
    )
    return (
        f"predicted for a reply of {predicted.decode_tokens} tokens: {broken}, "
        f"{predicted.kv_read_bytes_saved / 1e6:.1f} MB of KV not read, {predicted.decode_seconds_saved:.3f} s of "
        f"decoding and {predicted.prefill_seconds_saved:.3f} s of prefill saved"
    )


def _edit(edit: Edit, reason: Reason, messages: Sequence[Message]) -> EditView:
    first, last = (edit.start, edit.stop - 1) if isinstance(edit, DropMessages) else (edit.at, edit.at)
    return EditView(
        policy=edit.policy,
        reason=reason,
        why=WHY[reason],
        what=what(edit, messages),
        messages=(first, last),
        removed_tokens=edit.removed_tokens,
        diff=list(_diff(edit, messages)),
    )


def what(edit: Edit, messages: Sequence[Message]) -> str:
    """What an edit does, in words."""
    match edit:
        case ReplaceText():
            name = f" ({messages[edit.at].name})" if messages[edit.at].name else ""
            return f"message {edit.at}, {messages[edit.at].role}{name}, shortened"
        case DropMessages():
            return f"messages {edit.start} to {edit.stop - 1} left out"
        case ClearReasoning():
            return f"message {edit.at}, reasoning left out"
        case ReplaceArguments():
            return f"message {edit.at}, arguments of call {edit.call} made a JSON object"
        case InsertAnswer():
            return f"behind message {edit.at} an answer to a call that had none"
        case AddSummary():
            return f"behind message {edit.at} a record of what was left out"
        case AddNote():
            return f"behind message {edit.at} a note where {len(edit.messages)} messages left out are kept"


def _diff(edit: Edit, messages: Sequence[Message]) -> Iterator[str]:
    """Lines that go, with `-`, and lines that come, with `+`; linear in the text."""
    match edit:
        case ReplaceText():
            yield from _replaced(messages[edit.at].text, _unnamed(edit.text, edit.handle))
        case DropMessages():
            gone = messages[edit.start : edit.stop]
            heads = [f"{message.role}: {message.text.partition(chr(10))[0]}" for message in gone[: 2 * SHOWN_LINES + 1]]
            yield from _some(heads, len(gone), "-", "messages")
        case ClearReasoning():
            yield from _lines(messages[edit.at].reasoning_text, "-")
        case ReplaceArguments():
            yield from _lines(messages[edit.at].calls[edit.call].arguments, "-")
            yield from _lines(edit.arguments, "+")
        case InsertAnswer():
            yield from _lines(edit.text, "+")
        case AddSummary() | AddNote():
            yield from _lines(_unnamed(edit.text.lstrip("\n"), edit.handle), "+")


def _unnamed(text: str, handle: str) -> str:
    return text.replace(handle, "...") if handle else text


def _replaced(before: str, after: str) -> Iterator[str]:
    """What differs between the lines that both begin with and those that both end with."""
    old, new = before.split("\n"), after.split("\n")
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    rest = shorter - head
    tail = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    gone, come = old[head : len(old) - tail], new[head : len(new) - tail]
    yield from _some(gone, len(gone), "-", "lines")
    yield from _some(come, len(come), "+", "lines")


def _lines(text: str, sign: str) -> Iterator[str]:
    split = text.split("\n")
    return _some(split, len(split), sign, "lines")


def _some(shown: Sequence[str], count: int, sign: str, things: str) -> Iterator[str]:
    """The first ones, and how many there are more."""
    few = count if count <= SHOWN_LINES + 1 else SHOWN_LINES
    for line in islice(shown, few):
        yield f"{sign} {line if len(line) <= SHOWN_CHARACTERS else line[:SHOWN_CHARACTERS] + '...'}"
    if count > few:
        yield f"{sign} ... {count - few} {things} more"
