"""How scripts are told of limits: the bytes that `lua/buckets.lua` reads.

Rule: what a script would work out for each limit and each call is worked out here, once.
"""

from collections.abc import Iterable, Sequence
from hashlib import blake2b
from struct import Struct, pack
from typing import Final, NamedTuple

import msgspec

RATE, QUOTA, CALLS = range(3)
"""Kinds of limits."""
_OPEN: Final = Struct("<dd")
_ROW: Final = Struct("<BBHddd")
_DIGEST_BYTES: Final = 8


class Row(NamedTuple):
    """One limit. `does`: nothing, it is in shadow; 1, it refuses; 2, callers are told of it too.

    `place` is that of what it is asked for in a call's amounts; `capacity` in micro-units. `one` and `two`: of a rate
    what flows back in how many us, of a quota when its window begins and ends. `stays`: what of a call whose worker
    died is charged, micro-units for each token of its prompt; -1 is all of it. `board` is where its bucket stands.
    """

    board: str
    bucket: str
    kind: int
    does: int
    place: int
    capacity: int
    one: int
    two: int
    stays: int


def terms(opens_at: float, ends_at: float, rows: Sequence[Row]) -> bytes:
    """All that scripts are told of limits, those of a board one behind the other. Times in us since 1970."""
    fields = [*dict.fromkeys(row.board for row in rows)]
    layouts: list[object] = []
    for field in fields:
        names = [row.bucket for row in rows if row.board == field and row.kind != CALLS]
        listed = msgspec.msgpack.encode(names)
        head = blake2b(listed, digest_size=_DIGEST_BYTES).digest() + pack("<H", len(names))
        last = max(number for number, row in enumerate(rows, 1) if row.board == field)
        layouts += [msgspec.Raw(_string(head)), msgspec.Raw(_string(listed)), last]
    numbers = b"".join([_OPEN.pack(opens_at, ends_at), *(_ROW.pack(*row[2:8]) for row in rows)])
    numbers += pack(f"<{len(rows)}d", *(row.stays for row in rows))
    return msgspec.msgpack.encode(fields) + msgspec.msgpack.encode(layouts) + _string(numbers)


def together(boards: Iterable[str]) -> list[int]:
    """In which order limits stand if those of a board are to stand together, the first of each where it stood."""
    listed = [*boards]
    first = {board: at for at, board in reversed([*enumerate(listed)])}
    return sorted(range(len(listed)), key=lambda at: first[listed[at]])


def _string(value: bytes) -> bytes:
    """A string of MessagePack: scripts know no bytes there, and Lua's strings may be any."""
    return pack(">BL", 0xDB, len(value)) + value
