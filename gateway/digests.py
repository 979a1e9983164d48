"""Names of messages and of conversations: 128-bit digests of wire bytes.

Rule: always used inside one tenant's own keys, so that no tenant's digest can meet another's.
"""

from collections.abc import Iterable, Sequence

import xxhash


def of_messages(messages: Iterable[bytes]) -> tuple[bytes, ...]:
    """One digest of 16 bytes for each message."""
    return tuple(map(xxhash.xxh3_128_digest, messages))


def chained(digests: Sequence[bytes]) -> tuple[bytes, ...]:
    """Cumulative digests: the i-th names messages 0 to i together."""
    chain: list[bytes] = []
    link = b""
    for digest in digests:
        link = xxhash.xxh3_128_digest(link + digest)
        chain.append(link)
    return tuple(chain)
