"""`POST /v1/chat/completions` of the OpenAI API.

Rule: messages stay wire bytes until a policy may act on them. Media count at a media cost, not at the length of their
base64 text, so a picture does not look like a million tokens.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from gateway.call import Call
from gateway.dialects.fields import edited
from gateway.dialects.openai import OpenAIDialect
from gateway.dialects.openai_body import (
    OpenAIBody,
    choices_of,
    hints_of,
    limit_of,
    outside,
    parsed,
    present,
    wants_usage,
)
from gateway.dialects.openai_edits import rendered
from gateway.dialects.openai_messages import neutral
from gateway.dialects.openai_reply import ChatReply
from gateway.dialects.roles import role_of
from gateway.errors import InvalidRequest
from policies.conversation import Message
from policies.edit import Edit

MEDIA_BYTES: Final = 4_096
"""What one picture or sound adds to the byte bound: between 1,000 and 5,000 tokens at the engines we know."""

# Only a content in parts can hold media: what a plain text says about pictures is text. Every part that is not text has
# one of these keys; inside a text their quotes would be escaped.
_PARTS: Final = re.compile(rb'"content"\s*:\s*\[')
_TEXT: Final = re.compile(rb'\{\s*"role"\s*:\s*"\w+"\s*,\s*"content"\s*:\s*"')
"""How most messages begin: no more of them need be searched. (Were there a second content, its bytes would count.)"""
_PLAIN: Final = tuple(
    b'{"role":%b"%b",%b"content":%b"' % (space, role, space, space)
    for role in (b"user", b"assistant", b"system", b"tool", b"developer")
    for space in (b"", b" ")
)
"""The same as nearly all clients write it."""
_MARKS: Final = (b'_url"', b'_embeds"', b'"input_audio"', b'"source"', b'"audio"', b'"file"', b'"image"', b'"video"')
_MEDIA: Final = re.compile(rb'"(?:[a-z_]*_url|[a-z_]*_embeds|input_audio|source|audio|file|image|video)"\s*:')
_OUTPUTS: Final = frozenset(("tool", "function", ""))
"""Roles of what tools give; one that cannot be read may be one of them."""
_ADDRESS: Final = re.compile(rb'"(?:url|data|file_data|[a-z_]*_url)"\s*:\s*"')


class ChatBody(OpenAIBody, kw_only=True):
    """A chat request as far as we read it."""

    messages: list[msgspec.Raw]
    tools: msgspec.Raw = msgspec.Raw(b"")
    functions: msgspec.Raw = msgspec.Raw(b"")
    documents: msgspec.Raw = msgspec.Raw(b"")
    chat_template_kwargs: msgspec.Raw = msgspec.Raw(b"")


_DECODER = msgspec.json.Decoder(ChatBody, strict=False)


class OpenAIChat(OpenAIDialect):
    """The dialect of chat completions."""

    engine_path = b"/v1/chat/completions"
    chunk_object = "chat.completion.chunk"
    empty_choice: Mapping[str, object] = MappingProxyType({"delta": {}})

    def parse(self, body: bytes) -> Call:
        chat, body, mended = parsed(_DECODER, body)
        if not chat.messages:
            raise InvalidRequest("`messages` must hold at least one message.", param="messages")
        messages = tuple(map(bytes, chat.messages))
        tools = bytes(chat.tools)
        others = b"".join((chat.functions, chat.documents, chat.chat_template_kwargs))
        overhead = tools + others if others else tools
        sizes = [countable_bytes(message) for message in messages]
        content_bytes = sum(sizes) + len(overhead)
        choices = choices_of(chat)
        return Call(
            dialect=self,
            body=body,
            mended=mended,
            model=chat.model,
            stream=bool(chat.stream),
            wants_usage=wants_usage(chat),
            messages=messages,
            content_bytes=content_bytes,
            prompt_bytes=content_bytes,
            largest_output_bytes=largest_output(messages, sizes),
            overhead=overhead,
            tools=tools,
            max_tokens=limit_of(chat),
            choices=choices,
            sequences=choices,
            truncates=chat.truncate_prompt_tokens is not None,
            present=present(body, chat, outside(body, messages)),
            hints=hints_of(chat),
        )

    def messages(self, call: Call, digests: Sequence[bytes]) -> tuple[Message, ...]:
        return neutral(call.messages, digests)

    def countable(self, message: Message) -> str:
        called = "".join(f"\n{call.name}{call.arguments}" for call in message.calls)
        return f"{message.role}\n{message.reasoning_text}{message.text}{called}"

    def render(self, call: Call, edits: Sequence[Edit]) -> bytes:
        if not edits:
            return call.body
        messages = b"[" + b",".join(rendered(call.messages, edits)) + b"]"
        return edited(call.body, {"messages": messages}, {"messages": b""})

    def reader(self, call: Call) -> ChatReply:
        return ChatReply()

    def continued(self, call: Call, earlier: Sequence[bytes]) -> Call:
        messages = b"[" + b",".join((*earlier, *call.messages)) + b"]"
        return self.parse(edited(call.body, {"messages": messages}, {"messages": b""}))


def largest_output(messages: Sequence[bytes], sizes: Sequence[int]) -> int:
    """The size of the largest message that may be a tool's output; 0 if none can be."""
    largest = 0
    for size, message in zip(sizes, messages, strict=True):
        if size > largest and role_of(message) in _OUTPUTS:
            largest = size
    return largest


def countable_bytes(message: bytes) -> int:
    """An upper bound of what a message can cost in tokens: the bytes of its text, media at their own price."""
    if (
        message.startswith(_PLAIN)
        or _TEXT.match(message)
        or _PARTS.search(message) is None
        or not any(mark in message for mark in _MARKS)
    ):
        return len(message)
    return len(message) - _address_bytes(message) + len(_MEDIA.findall(message)) * MEDIA_BYTES


def _address_bytes(message: bytes) -> int:
    """How much of a message is addresses and base64 text, which no engine reads as text."""
    total = 0
    found = _ADDRESS.search(message)
    while found is not None:
        stop = message.find(b'"', found.end())
        total += stop - found.end()
        found = _ADDRESS.search(message, stop)
    return total
