"""Text to token ids and back, and the chat template of the emulated model.

Rule: a message is rendered by itself, so two conversations that begin alike have the same tokens as far as they are
alike: that is what a prefix cache lives on. The encoding is the gateway's own.

Template, each message: START role newline content END newline; then START "assistant" newline. Tools come first, as a
message of role "system" of their own; calls are written into the content as `<tool_call>` blocks.
"""

import json
from array import array
from collections.abc import Mapping, Sequence
from functools import lru_cache

from gateway.tokens import DEFAULT_ENCODING, PIECE_CHARACTERS, encoding


class Tokenizer:
    """Keeps the tokens of recent texts: a conversation is sent again with every turn."""

    def __init__(self, name_or_file: str = DEFAULT_ENCODING, remembered_texts: int = 1024) -> None:
        self._encoding = encoding(name_or_file)
        self.start = self._encoding.n_vocab
        self.end = self.start + 1
        self._markers = {self.start: b"<|im_start|>", self.end: b"<|im_end|>"}
        self.encode = lru_cache(maxsize=remembered_texts)(self._encode)

    def _encode(self, text: str) -> "array[int]":
        tokens: array[int] = array("I")
        for at in range(0, len(text), PIECE_CHARACTERS):
            tokens.extend(self._encoding.encode(text[at : at + PIECE_CHARACTERS], disallowed_special=()))
        return tokens

    def chat(self, messages: Sequence[Mapping[str, object]], tools: Sequence[object] = ()) -> "array[int]":
        """The prompt of a conversation, ready for the assistant's next word."""
        tokens: array[int] = array("I")
        if tools:
            listed = "\n".join(json.dumps(tool) for tool in tools)
            tokens += self._message("system", f"Tools:\n{listed}")
        for message in messages:
            tokens += self._message(str(message.get("role")), content_of(message))
        tokens.append(self.start)
        return tokens + self.encode("assistant\n")

    def _message(self, role: str, content: str) -> "array[int]":
        head = array("I", [self.start])
        return head + self.encode(f"{role}\n") + self.encode(content) + array("I", [self.end]) + self.encode("\n")

    def decode(self, tokens: Sequence[int]) -> str:
        """Unknown ids and broken UTF-8 become the replacement character."""
        return b"".join(map(self.token_bytes, tokens)).decode("utf-8", "replace")

    def token_bytes(self, token: int) -> bytes:
        """The bytes of one token; of an id that the vocabulary lacks, those of the replacement character."""
        if token in self._markers:
            return self._markers[token]
        try:
            return self._encoding.decode_single_token_bytes(token)
        except (KeyError, OverflowError):
            return "\N{REPLACEMENT CHARACTER}".encode()

    def pieces(self, text: str) -> tuple[list[str], "array[int]"]:
        """ASCII text as the pieces its tokens add, and the tokens."""
        tokens = self.encode(text)
        return [self.token_bytes(token).decode("ascii") for token in tokens], tokens

    def spoken(self, pieces: Sequence[str]) -> "array[int]":
        """The tokens of a reply's pieces: one each, the end marker for a piece without text."""
        ids: array[int] = array("I")
        for piece in pieces:
            known = self.encode(piece)
            ids.append(known[0] if len(known) == 1 else self.end)
        return ids


def content_of(message: Mapping[str, object]) -> str:
    """The text of a message as the model sees it: its text parts, then its calls."""
    content = message.get("content")
    parts = content if isinstance(content, list) else [content]
    text = "".join(_text_of(part) for part in parts)
    calls = message.get("tool_calls")
    return text + "".join(_call(call) for call in calls) if isinstance(calls, list) else text


def _text_of(part: object) -> str:
    if isinstance(part, Mapping):
        part = part.get("text")
    return part if isinstance(part, str) else ""


def _call(call: object) -> str:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return ""
    return call_text(str(function.get("name")), str(function.get("arguments")))


def call_text(name: str, arguments: str) -> str:
    """A tool call as the model writes it: `arguments` is JSON text."""
    return f'<tool_call>\n{{"name": {json.dumps(name)}, "arguments": {arguments}}}\n</tool_call>'
