"""Names of messages and of conversations: 128-bit digests of wire bytes.

Rule: always used inside one tenant's own keys, so that no tenant's digest can meet another's.
"""

from collections.abc import Iterable, Sequence

import xxhash

from gateway.markers import MARKER, without_markers


def of_messages(messages: Iterable[bytes]) -> tuple[bytes, ...]:
    """One digest of 16 bytes for each message, whether a cache marker stands in it or not."""
    plain = [message if message.find(MARKER) < 0 else without_markers(message) for message in messages]
    return tuple(map(xxhash.xxh3_128_digest, plain))


class Chain:
    """The cumulative digests of a conversation, its links: the n-th names the first n messages together.

    Rule: a link costs one pass over the names before it, so only those that somebody asks for are worked out, and those
    that were asked for last are kept.
    """

    __slots__ = ("_after", "_links", "_names")

    def __init__(self, names: Sequence[bytes]) -> None:
        """`names` are digests of the messages, of 16 bytes each."""
        self._names = names
        self._after = len(names)
        self._links: list[bytes] = []

    def __len__(self) -> int:
        return len(self._names)

    def links(self, after: int) -> list[bytes]:
        """The links behind the first `after`, 16 bytes each; nothing if there are no more."""
        if after < self._after:
            hashed = xxhash.xxh3_128(b"".join(self._names[:after]))
            self._after, self._links = after, []
            for name in self._names[after:]:
                hashed.update(name)
                self._links.append(hashed.digest())
        return self._links[after - self._after :]

    def link(self, count: int) -> bytes:
        """The digest that names the first `count` messages."""
        return xxhash.xxh3_128_digest(b"".join(self._names[:count]))
