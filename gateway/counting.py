"""Counts the tokens of a conversation, each message once.

Rule: a message is counted when a decision needs it and remembered by digest; much new text is counted in a thread, so
that no other stream waits for it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from math import ceil
from typing import Final

import xxhash

from gateway.call import Call
from gateway.tokens import CountTokens
from policies.conversation import Conversation, Message

MESSAGE_OVERHEAD_TOKENS: Final = 4
"""What a chat template adds around a message; the learned ratio of the model corrects the rest."""
MEDIA_TOKENS: Final = 1_024
"""A picture at the size most engines scale it to."""
BYTES_A_TOKEN: Final = 4
THREAD_CHARACTERS: Final = 65_536


class Counter:
    """Token counts of texts by digest, the `capacity` that were used last."""

    def __init__(self, count: CountTokens, capacity: int = 65_536) -> None:
        self._count = count
        self._capacity = capacity
        self._known: dict[bytes, int] = {}

    async def conversation(self, call: Call, digests: Sequence[bytes], scale: float = 1.0) -> Conversation:
        """The call's messages in neutral form, counted; counts are multiplied by `scale` and rounded up.

        Tokens that came as ids are the model's own and are not scaled.
        """
        messages = call.dialect.messages(call, digests)
        overhead = xxhash.xxh3_128_digest(call.overhead, seed=1)  # a message of the same bytes is read differently
        known, dialect = self._known, call.dialect
        tokens = {name: known[name] for name in (*digests, overhead) if name in known}
        unseen = {m.digest: dialect.countable(m) for m in messages if m.digest not in tokens}
        if overhead not in tokens:
            unseen[overhead] = call.overhead.decode("utf-8", "replace")
        if unseen:
            tokens |= zip(unseen, await self._counted(list(unseen.values())), strict=True)
        self._remember(tokens)
        counted = [m.counted(ceil(_whole(m, tokens[m.digest]) * scale)) for m in messages]
        return Conversation(tuple(counted), ceil(tokens[overhead] * scale) + call.overhead_tokens)

    def guessed(self, call: Call, digests: Sequence[bytes]) -> Conversation:
        """The same with no token counted: four bytes are taken for one, where no decision hangs on it."""
        messages = call.dialect.messages(call, digests)
        guessed = [m.counted(len(raw) // BYTES_A_TOKEN + 1) for m, raw in zip(messages, call.messages, strict=True)]
        return Conversation(tuple(guessed), len(call.overhead) // BYTES_A_TOKEN + call.overhead_tokens)

    async def _counted(self, texts: Sequence[str]) -> list[int]:
        if sum(map(len, texts)) > THREAD_CHARACTERS:
            return await asyncio.to_thread(self._count_all, texts)
        return self._count_all(texts)

    def _count_all(self, texts: Sequence[str]) -> list[int]:
        return [self._count(text) for text in texts]

    def _remember(self, tokens: Mapping[bytes, int]) -> None:
        for digest in tokens:
            self._known.pop(digest, None)  # what was used last stands last
        self._known.update(tokens)
        while len(self._known) > self._capacity:
            self._known.pop(next(iter(self._known)))

    def text(self, text: str) -> int:
        """The tokens of one text."""
        return self._count(text)


def _whole(message: Message, text_tokens: int) -> int:
    return text_tokens + message.media * MEDIA_TOKENS + MESSAGE_OVERHEAD_TOKENS
