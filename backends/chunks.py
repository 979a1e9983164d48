"""A body as HTTP/1.1 frames it: reads that are whole chunks, and nothing else.

Rule: only what is exactly `size CRLF data CRLF`, over and over to the end of the read, is known here. Everything else
(part of a chunk, extensions, the last chunk, trailers) is llhttp's to judge.
"""

import re
from typing import Final

LONGEST_KNOWN_BYTES: Final = 1024
"""Chunks of one token are shorter, their framing included; longer ones are measured one by one."""

_SIZE: Final = re.compile(rb"([0-9A-Fa-f]{1,7})\r\n")


def _size_lines(written: bytes) -> tuple[bytes, ...]:
    lines = [b"\0"] * LONGEST_KNOWN_BYTES  # no chunk begins like this
    for size in range(1, LONGEST_KNOWN_BYTES):
        line = written % size
        framed = len(line) + size + 2
        if framed < LONGEST_KNOWN_BYTES:
            lines[framed] = line
    return tuple(lines)


LOWER: Final = _size_lines(b"%x\r\n")
"""The size line of a chunk, by the length of the whole chunk, as servers in Python and C write it."""
UPPER: Final = _size_lines(b"%X\r\n")
"""The same, as servers in Rust write it."""


def body_of(read: bytes) -> bytes | None:
    """What the chunks carry; None if the read is not whole chunks, or holds the last one of a body."""
    parts, at = [], 0
    while at < len(read):
        line = _SIZE.match(read, at)
        if line is None:
            return None
        start = line.end()
        at = start + int(line[1], 16) + 2
        if at == start + 2 or read[at - 2 : at] != b"\r\n":
            return None
        parts.append(read[start : at - 2])
    return parts[0] if len(parts) == 1 else b"".join(parts)
