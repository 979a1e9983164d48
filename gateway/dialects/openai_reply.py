"""The reply to a chat call as the message that it is in the next call, streamed or not.

Rule: both ways give the same bytes, so the engine's prefix cache sees the same conversation. Fields that say nothing
are left out, since engines differ in what they accept from a client: `"tool_calls": []` is an error to some.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from backends.frames import payload_of
from gateway.dialects.openai_messages import decoded, without_surrogates

_TEXTS: Final = ("content", "reasoning", "reasoning_content", "refusal")
_BORDER: Final = re.compile(rb"(?>\r\n|\r|\n)(?>\r\n|\r|\n)")
_BORDERS: Final = (b"\n\n", b"\r\n\r\n", b"\r\r")
FOLD_BYTES: Final = 64 * 1024
"""How much of a stream is kept before it is read, so that a long one takes no more memory than what it says."""


class ChatReply:
    """Fed with the body of an answer as the client gets it."""

    def __init__(self) -> None:
        self._unread = bytearray()
        self._fold_at = FOLD_BYTES
        self._streamed = False
        self._finished = False
        self._texts: dict[str, list[str]] = {name: [] for name in _TEXTS}
        self._calls: dict[int, dict[str, Any]] = {}
        self._function: dict[str, Any] = {}

    def feed(self, data: bytes) -> None:
        """The next piece of the body."""
        self._unread += data
        if len(self._unread) >= self._fold_at:
            self._fold()
            self._fold_at = len(self._unread) + FOLD_BYTES

    def message(self) -> bytes | None:
        """The assistant's message; None where the answer holds none, or not to its end."""
        if not self._streamed and self._unread.lstrip().startswith(b"{"):
            self._whole(decoded(bytes(self._unread)))
        else:
            self._read(bytes(self._unread))
        self._unread.clear()
        return msgspec.json.encode(without_surrogates(self._message())) if self._finished else None

    def _fold(self) -> None:
        """Read the frames that are whole."""
        ends = (self._unread.rfind(border) + len(border) for border in _BORDERS if border in self._unread)
        stop = max(ends, default=0)
        if stop and not self._unread.lstrip().startswith(b"{"):
            self._read(bytes(self._unread[:stop]))
            del self._unread[:stop]

    def _read(self, frames: bytes) -> None:
        for frame in _BORDER.split(frames):
            payload = payload_of(frame)
            if payload is not None:
                self._streamed = True
                self._finished = self._finished or payload.strip() == b"[DONE]"
                for choice in _objects(decoded(payload).get("choices")):
                    self._add(_object(choice.get("delta")))
                    self._finished = self._finished or bool(choice.get("finish_reason"))

    def _whole(self, body: Mapping[str, Any]) -> None:
        for choice in _objects(body.get("choices"))[:1]:
            self._add(_object(choice.get("message")))
            self._finished = True

    def _add(self, part: Mapping[str, Any]) -> None:
        for name in _TEXTS:
            if isinstance(text := part.get(name), str):
                self._texts[name].append(text)
        _joined(self._function, _object(part.get("function_call")))
        for number, call in enumerate(_objects(part.get("tool_calls"))):
            self._called(call, number)

    def _called(self, call: Mapping[str, Any], number: int) -> None:
        """A call, or a piece of one. Engines that give no index send whole calls, or go on with the last one."""
        at = call.get("index")
        if not isinstance(at, int):
            at = len(self._calls) if call.get("id") else max(number, len(self._calls) - 1)
        kept = self._calls.setdefault(at, {"id": "", "type": "function", "function": {}})
        for name in ("id", "type"):
            if isinstance(value := call.get(name), str) and value:
                kept[name] = value
        _joined(kept["function"], _object(call.get("function")))

    def _message(self) -> dict[str, Any]:
        texts = {name: "".join(parts) for name, parts in self._texts.items()}
        calls = [self._calls[at] for at in sorted(self._calls)]
        content = texts.pop("content")
        message: dict[str, Any] = {"role": "assistant", "content": content or (None if calls or self._function else "")}
        message |= {name: text for name, text in texts.items() if text}
        if calls:
            message["tool_calls"] = calls
        if self._function:
            message["function_call"] = self._function
        return message


def _joined(kept: dict[str, Any], part: Mapping[str, Any]) -> None:
    """A name comes once, arguments in pieces."""
    if isinstance(name := part.get("name"), str) and name:
        kept.setdefault("name", name)
    if isinstance(arguments := part.get("arguments"), str):
        kept["arguments"] = kept.get("arguments", "") + arguments


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []
