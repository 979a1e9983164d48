"""Counts the tokens of a conversation, each message once.

Rule: a message is counted when a decision needs it and remembered by digest; much new text is counted in a thread, so
that no other stream waits for it.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Final

from gateway.call import Call
from gateway.tokens import CountTokens
from policies.conversation import Conversation

MESSAGE_OVERHEAD_TOKENS: Final = 4
"""What a chat template adds around a message; the learned ratio of the model corrects the rest."""
MEDIA_TOKENS: Final = 1_024
"""A picture at the size most engines scale it to."""
THREAD_CHARACTERS: Final = 65_536


class Counter:
    """Token counts by digest, the most recent `capacity` of them."""

    def __init__(self, count: CountTokens, capacity: int = 65_536) -> None:
        self._count = count
        self._capacity = capacity
        self._known: dict[bytes, int] = {}

    async def conversation(self, call: Call, digests: Sequence[bytes], scale: float = 1.0) -> Conversation:
        """The call's messages in neutral form, counted; counts are multiplied by `scale` and rounded up."""
        messages = call.dialect.messages(call, digests)
        known = {m.digest: self._known[m.digest] for m in messages if m.digest in self._known}
        unseen = [message for message in messages if message.digest not in known]
        counts = await self._counted([call.dialect.countable(message) for message in unseen])
        for message, text_tokens in zip(unseen, counts, strict=True):
            known[message.digest] = text_tokens + message.media * MEDIA_TOKENS + MESSAGE_OVERHEAD_TOKENS
        self._remember(known)
        overhead = await self._counted([call.overhead.decode("utf-8", "replace")]) if call.overhead else [0]
        counted = [replace(message, tokens=ceil(known[message.digest] * scale)) for message in messages]
        return Conversation(tuple(counted), ceil(overhead[0] * scale))

    async def _counted(self, texts: Sequence[str]) -> list[int]:
        if sum(map(len, texts)) > THREAD_CHARACTERS:
            return await asyncio.to_thread(self._count_all, texts)
        return self._count_all(texts)

    def _count_all(self, texts: Sequence[str]) -> list[int]:
        return [self._count(text) for text in texts]

    def _remember(self, counts: dict[bytes, int]) -> None:
        self._known.update(counts)
        while len(self._known) > self._capacity:
            self._known.pop(next(iter(self._known)))

    def text(self, text: str) -> int:
        """The tokens of one text."""
        return self._count(text)
