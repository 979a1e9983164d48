"""Edits carried out on the messages of an OpenAI chat request.

Rule: a message that no edit touches leaves as the bytes that came; a touched one keeps every field that its edits do
not name.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from gateway.dialects.openai_messages import LEGACY_CALL, REASONING, decoded, with_more, with_text, without_surrogates
from policies.edit import (
    AddNote,
    AddSummary,
    Change,
    ClearReasoning,
    DropMessages,
    Edit,
    InsertAnswer,
    ReplaceArguments,
    ReplaceText,
)

_FUNCTION: Final = "function"


def rendered(messages: Sequence[bytes], edits: Sequence[Edit]) -> Iterator[bytes]:
    """The raw messages as they are sent; `edits` name them by their place in `messages`."""
    kept: list[bytes | None] = list(messages)
    answers: dict[int, list[bytes]] = {}
    for edit in edits:
        match edit:
            case DropMessages():
                kept[edit.start : edit.stop] = [None] * (edit.stop - edit.start)
            case InsertAnswer():
                answers.setdefault(edit.at, []).append(_answer(edit))
            case _:
                kept[edit.at] = _changed(kept[edit.at] or messages[edit.at], edit)
    for at, message in enumerate(kept):
        if message is not None:
            yield message
            yield from answers.get(at, ())


def _changed(raw: bytes, edit: Change) -> bytes:
    match edit:
        case ReplaceText():
            return with_text(raw, edit.text)
        case ClearReasoning():
            return _encoded({field: value for field, value in decoded(raw).items() if field not in REASONING})
        case ReplaceArguments():
            return _encoded(_with_arguments(decoded(raw), edit))
        case AddSummary() | AddNote():
            return with_more(raw, edit.text)


def _with_arguments(wire: Mapping[str, Any], edit: ReplaceArguments) -> Mapping[str, Any]:
    """Calls are numbered as the neutral form numbers them: what is not an object in the list is none."""
    if not isinstance(wire.get("tool_calls"), list):
        return {**wire, LEGACY_CALL: {**wire[LEGACY_CALL], "arguments": edit.arguments}}
    calls = list(wire["tool_calls"])
    place = [at for at, call in enumerate(calls) if isinstance(call, dict)][edit.call]
    function = calls[place].get(_FUNCTION)
    function = function if isinstance(function, dict) else {}
    calls[place] = {**calls[place], _FUNCTION: {**function, "arguments": edit.arguments}}
    return {**wire, "tool_calls": calls}


def _answer(edit: InsertAnswer) -> bytes:
    return _encoded({"role": "tool", "tool_call_id": edit.call_id, "content": edit.text})


def _encoded(wire: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(without_surrogates(wire))
