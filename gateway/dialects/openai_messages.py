"""OpenAI chat messages: wire bytes to the neutral form that policies read, and replaced text back to wire bytes.

Rule: tolerant in reading (null content, part lists, unknown roles), exact in writing: a message that no edit touches
is never re-encoded, and a touched one keeps every field but its text.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, cast

import msgspec

from gateway.dialects.openai_plain import UNREAD, plain
from policies.conversation import Message, Role, ToolCall

_ROLES: Final = ("system", "developer", "user", "assistant", "tool")
"""A tuple, because a role may be anything, a list too."""
_LEGACY_ROLE: Final = "function"
LEGACY_CALL: Final = "function_call"
"""How calls and their results were written before there were ids: a result answers the nearest call before it."""
_LEGACY_ID: Final = ""
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
REASONING: Final = ("reasoning", "reasoning_content", "thinking_blocks")
"""Fields in which clients send an assistant's reasoning back."""


def neutral(raws: Sequence[bytes], digests: Sequence[bytes]) -> tuple[Message, ...]:
    """The messages of a conversation; a tool answer takes its tool's name from the call it answers."""
    names: dict[str, str] = {}
    messages = []
    for raw, digest in zip(raws, digests, strict=True):
        try:
            read = plain(raw)
        except UNREAD:
            messages.append(any_form(raw, digest, names))
            continue
        calls = read.calls
        for call in calls:
            names[call.id.strip()] = call.name
        answers = read.tool_call_id if read.role == "tool" else None
        messages.append(read.message(digest, calls, names.get(answers.strip()) if answers is not None else None))
    return tuple(messages)


def any_form(raw: bytes, digest: bytes, names: dict[str, str]) -> Message:
    """One message, whatever its form. `names` are those of the tools called, by call id; its own are added."""
    wire = decoded(raw)
    calls = calls_of(wire)
    names.update((call.id.strip(), call.name) for call in calls)
    return _message(wire, digest, calls, names)


def decoded(raw: bytes) -> Mapping[str, Any]:
    """One message as an object; what cannot be read as one is empty. Lone surrogates are kept for the engine."""
    try:
        value = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        try:
            value = json.loads(raw)
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, dict) else {}


def with_text(raw: bytes, text: str) -> bytes:
    """The message with its text replaced: a string stays a string, a list keeps its parts that are not text."""
    if (replaced := _with_string(raw, text)) is not None:
        return replaced
    wire = dict(decoded(raw))
    content = wire.get("content")
    if isinstance(content, list):
        others = [part for part in content if not _is_text(part)]
        wire["content"] = [{"type": "text", "text": text}, *others]
    else:
        wire["content"] = text
    return msgspec.json.encode(without_surrogates(wire))


def _with_string(raw: bytes, text: str) -> bytes | None:
    """The same without reading the text that is replaced; None where the content is no string, or another field holds
    escapes, which may be lone surrogates."""
    try:
        fields = _FIELDS.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    content = fields.get("content")
    others = [bytes(value) for name, value in fields.items() if name != "content"]
    if content is None or bytes(memoryview(content)[:1]) != b'"' or any(b"\\" in value for value in others):
        return None
    whole = msgspec.Raw(msgspec.json.encode(without_surrogates(text)))
    return msgspec.json.encode({**fields, "content": whole})


def with_more(raw: bytes, text: str) -> bytes:
    """The message with `text` behind its own: in the same string, or as a part behind all others."""
    wire = dict(decoded(raw))
    content = wire.get("content")
    if isinstance(content, list):
        wire["content"] = [*content, {"type": "text", "text": text.lstrip("\n")}]
    else:
        wire["content"] = (content + text) if isinstance(content, str) else text.lstrip("\n")
    return msgspec.json.encode(without_surrogates(wire))


def text_of(content: object) -> str:
    """The text parts of a content, joined by line ends; empty for null."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "\n".join(str(part.get("text") or "") for part in content if _is_text(part))


def _message(wire: Mapping[str, Any], digest: bytes, calls: tuple[ToolCall, ...], names: Mapping[str, str]) -> Message:
    role = _role(wire)
    content = wire.get("content")
    answers = _answered(wire) if role == "tool" else None
    answered = names.get(answers.strip()) if isinstance(answers, str) else None
    return Message(
        role=role,
        digest=digest,
        tokens=0,
        text=text_of(content),
        calls=calls,
        answers=answers if isinstance(answers, str) else None,
        name=answered or _text(wire.get("name")),
        media=sum(not _is_text(part) for part in content) if isinstance(content, list) else 0,
        reasoning=any(wire.get(field) for field in REASONING),
        cache_control=_markers(wire),
        reasoning_text="\n".join(filter(None, (_thinking(wire.get(field)) for field in REASONING))),
    )


def _role(wire: Mapping[str, Any]) -> Role:
    role = wire.get("role")
    return "tool" if role == _LEGACY_ROLE else cast(Role, role if role in _ROLES else "user")


def _answered(wire: Mapping[str, Any]) -> object:
    return _LEGACY_ID if wire.get("role") == _LEGACY_ROLE else wire.get("tool_call_id")


def _thinking(value: object) -> str:
    """What a field of reasoning says: a text, or a list of blocks of which each has its text."""
    if isinstance(value, list):
        return "\n".join(_text(block.get("thinking")) or "" for block in value if isinstance(block, dict))
    return _text(value) or ""


def calls_of(wire: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """The calls that an assistant message makes."""
    listed = wire.get("tool_calls")
    if not isinstance(listed, list):
        legacy = wire.get(LEGACY_CALL)
        return (_call({"function": legacy}),) if isinstance(legacy, dict) else ()
    return tuple(_call(item) for item in listed if isinstance(item, dict))


def _call(item: Mapping[str, Any]) -> ToolCall:
    function = item.get("function")
    function = function if isinstance(function, dict) else {}
    identity = item.get("id") or item.get("call_id")
    return ToolCall(
        str(identity or _LEGACY_ID), _text(function.get("name")) or "", _arguments(function.get("arguments"))
    )


def _arguments(value: object) -> str:
    """Arguments as JSON text; some clients send the object itself."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def _is_text(part: object) -> bool:
    return isinstance(part, dict) and (part.get("type") in ("text", "input_text") or set(part) == {"text"})


def _markers(wire: Mapping[str, Any]) -> int:
    content = wire.get("content")
    parts = content if isinstance(content, list) else []
    return sum(isinstance(part, dict) and "cache_control" in part for part in [wire, *parts])


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def without_surrogates(value: Any) -> Any:
    """Strings with lone surrogates cannot be written as UTF-8: each becomes U+FFFD. Other values stay as they are."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {without_surrogates(key): without_surrogates(item) for key, item in value.items()}
    return value
