"""How the limits of a call stood right after the ledger was asked.

Rule: what nearly every call needs comes ready from the script, however many limits there are; the rest is read only
where somebody asks.
"""

from collections.abc import Iterator, Sequence

import msgspec

from budgets.limit import Limit
from budgets.scope import Standing, Terms

_DECODER = msgspec.msgpack.Decoder(tuple[int, ...])
_LARGE = msgspec.msgpack.Decoder(tuple[int | float, ...])


class Stood(msgspec.Struct, frozen=True):
    """`packed`: what was in use of each limit, in MessagePack. `at_seconds`: when, since 1970, by the store's clock.

    `tightest`: of each dimension that answers tell of, the number (from 1) of the limit that leaves least, and what was
    in use of it. `fullest`: how full the fullest limit that refuses was without this call, in millionths, rounded down.
    `near`: the numbers of limits that are nearly used up.
    """

    standing: Standing
    packed: bytes
    at_seconds: float
    tightest: Sequence[int] = ()
    fullest: int = 0
    near: Sequence[int] = ()

    @property
    def in_use(self) -> tuple[int, ...]:
        """Of each limit, in micro-units."""
        return whole(self.packed)

    @property
    def each(self) -> Iterator[tuple[Terms, int]]:
        """Every limit, with what was in use of it."""
        return zip(self.standing.terms, self.in_use, strict=True)

    @property
    def shown(self) -> list[tuple[Terms, int]]:
        """Those that answers tell of."""
        terms, told = self.standing.terms, self.tightest
        return [(terms[told[at] - 1], told[at + 1]) for at in range(0, len(told), 2)]

    @property
    def nearly(self) -> list[Limit]:
        """The limits that are nearly used up."""
        return [self.standing.terms[number - 1].limit for number in self.near]


def whole(packed: bytes) -> tuple[int, ...]:
    """Numbers as scripts pack them: what 64 bits do not hold comes as a float."""
    try:
        return _DECODER.decode(packed)
    except msgspec.ValidationError:
        return tuple(map(int, _LARGE.decode(packed)))
