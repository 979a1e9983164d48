"""Counts the tokens of a conversation, each message once.

Rule: a message is counted when a decision needs it and remembered by digest; much new text is counted in a thread, so
that no other stream waits for it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final

import xxhash
from msgspec.structs import replace

from gateway.call import Call
from gateway.recent import Recent
from gateway.tokens import CountTokens
from policies.conversation import Conversation, Message
from policies.measuring import Marks, Measure, measured

MESSAGE_OVERHEAD_TOKENS: Final = 4
"""What a chat template adds around a message; the learned ratio of the model corrects the rest."""
MEDIA_TOKENS: Final = 1_024
"""A picture at the size most engines scale it to."""
BYTES_A_TOKEN: Final = 4
MARKED_CHARACTERS: Final = 4_096
MAX_COUNTED: Final = 65_536
"""Messages whose tokens are remembered, some 130 bytes each."""
MAX_PIECES: Final = 131_072
"""Of long outputs, between marks: some 80 bytes each, of 128 to 256 characters."""
THREAD_CHARACTERS: Final = 65_536


class Counter:
    """Token counts of texts by digest, at most `capacity`; of long tool outputs their marks too."""

    def __init__(self, count: CountTokens, capacity: int = MAX_COUNTED) -> None:
        self._count = count
        self.known: Recent[bytes, int] = Recent(capacity)
        self.marked: Recent[bytes, Marks] = Recent(MAX_PIECES, _pieces)

    async def conversation(self, call: Call, digests: Sequence[bytes], scale: float = 1.0) -> Conversation:
        """The call's messages in neutral form, counted; counts are multiplied by `scale` and rounded up.

        Tokens that came as ids are the model's own and are not scaled.
        """
        messages = call.dialect.messages(call, digests)
        overhead = xxhash.xxh3_128_digest(call.overhead, seed=1)  # a message of the same bytes is read differently
        dialect = call.dialect
        tokens = self.known.those((*digests, overhead))
        unseen = {m.digest: dialect.countable(m) for m in messages if m.digest not in tokens}
        if overhead not in tokens:
            unseen[overhead] = call.overhead.decode("utf-8", "replace")
        long = {m.digest: m.text for m in messages if m.digest in unseen and _is_long(m)}
        if unseen:
            for name, counted_tokens in zip(unseen, await self._counted(unseen, long), strict=True):
                tokens[name] = counted_tokens
                self.known.keep(name, counted_tokens)
        counted = [m.counted(ceil(_whole(m, tokens[m.digest]) * scale)) for m in messages]
        return Conversation(tuple(counted), ceil(tokens[overhead] * scale) + call.overhead_tokens)

    def guessed(self, call: Call, digests: Sequence[bytes]) -> Conversation:
        """The same with no token counted: four bytes are taken for one, where no decision hangs on it."""
        messages = call.dialect.messages(call, digests)
        guessed = [m.counted(len(raw) // BYTES_A_TOKEN + 1) for m, raw in zip(messages, call.messages, strict=True)]
        return Conversation(tuple(guessed), len(call.overhead) // BYTES_A_TOKEN + call.overhead_tokens)

    async def _counted(self, texts: Mapping[bytes, str], long: Mapping[bytes, str]) -> list[int]:
        if sum(map(len, texts.values())) > THREAD_CHARACTERS:
            return await asyncio.to_thread(self._count_all, texts, long)
        return self._count_all(texts, long)

    def _count_all(self, texts: Mapping[bytes, str], long: Mapping[bytes, str]) -> list[int]:
        return [self._of(name, text, long.get(name)) for name, text in texts.items()]

    def _of(self, name: bytes, text: str, marked: str | None) -> int:
        """The tokens of a message; of one whose text is marked by its marks, and what stands before the text."""
        if marked is None:
            return self._count(text)
        return self._count(text[: len(text) - len(marked)]) + self.marks(name, marked).tokens[-1]

    def marks(self, name: bytes, text: str) -> Marks:
        """Where in the text of the message of this name how many tokens are reached."""
        if (known := self.marked.get(name)) is None:
            known = measured(text, self._count)
            self.marked.keep(name, known)
        return known

    def text(self, text: str) -> int:
        """The tokens of one text."""
        return self._count(text)


class Scaled(Measure):
    """Tokens of a model that has `scale` of its own to one of ours."""

    __slots__ = ("_counter", "_scale")

    def __init__(self, counter: Counter, scale: float) -> None:
        self._counter = counter
        self._scale = scale

    def __call__(self, text: str, /) -> int:
        return ceil(self._counter.text(text) * self._scale)

    def has_marks(self, digest: bytes) -> bool:
        """Whether the text of this message was measured, so that to measure it again costs nothing."""
        return self._counter.marked.get(digest) is not None

    def marks(self, digest: bytes, text: str) -> Marks:
        return replace(self._counter.marks(digest, text), scale=self._scale)


def _is_long(message: Message) -> bool:
    """Whether a message is a tool's output so long that it may be shortened."""
    alone = not (message.calls or message.reasoning_text)  # then its text is the end of what is counted
    return message.role == "tool" and len(message.text) > MARKED_CHARACTERS and alone


def _pieces(marks: Marks) -> int:
    return len(marks.ends) + 1


def _whole(message: Message, text_tokens: int) -> int:
    return text_tokens + message.media * MEDIA_TOKENS + MESSAGE_OVERHEAD_TOKENS
