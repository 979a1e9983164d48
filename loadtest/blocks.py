"""The KV cache of one engine as blocks of tokens: shared by prefix, kept after use, reclaimed oldest first.

Rule: a block is used (some sequence refers to it) or idle; an idle block keeps its content until its room is
needed, so the blocks in use and the idle ones always sum to the capacity. No clock, no I/O: the emulated engine
and a simulator run the same code.
"""

from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from xxhash import xxh3_128_digest

Chain = bytes
"""A digest over all tokens up to the end of one full block: equal chains mean an equal prefix."""


def root(salt: str | None = None) -> Chain:
    """Where a chain starts; chains of different salts never meet."""
    return xxh3_128_digest((salt or "").encode())


def extend(parent: Chain, tokens: "array[int]") -> Chain:
    """The chain one full block further."""
    return xxh3_128_digest(parent + tokens.tobytes())


class BlockPool:
    """`capacity` blocks, numbered from 0. Counts of tokens are the caller's business."""

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a KV cache needs at least one block, not {capacity}")
        self.capacity = capacity
        self._references = [0] * capacity
        self._idle: OrderedDict[int, None] = OrderedDict.fromkeys(range(capacity))
        self._chain_of: dict[int, Chain] = {}
        self._block_of: dict[Chain, int] = {}

    @property
    def used(self) -> int:
        return self.capacity - len(self._idle)

    @property
    def usage(self) -> float:
        """The share of blocks in use, 0 to 1."""
        return self.used / self.capacity

    def cached(self, chains: Iterable[Chain]) -> list[int]:
        """The blocks that hold the longest known prefix of `chains`. Refers to none of them yet."""
        found = []
        for chain in chains:
            block = self._block_of.get(chain)
            if block is None:
                break
            found.append(block)
        return found

    def fits(self, count: int, shared: Sequence[int] = ()) -> bool:
        """Whether `count` fresh blocks can be had beside `shared`, which may be idle at present."""
        return count + sum(1 for block in shared if not self._references[block]) <= len(self._idle)

    def share(self, blocks: Sequence[int]) -> None:
        """Refer to blocks found by `cached`."""
        for block in blocks:
            if not self._references[block]:
                del self._idle[block]
            self._references[block] += 1

    def take(self, count: int) -> list[int]:
        """`count` fresh blocks; the content that sat idle longest is lost. Ask `fits` first."""
        taken = [self._idle.popitem(last=False)[0] for _ in range(count)]
        for block in taken:
            self._references[block] = 1
            self._forget(block)
        return taken

    def publish(self, block: int, chain: Chain) -> None:
        """A block has become full: later sequences with the same prefix may share it. The first one is kept."""
        if chain not in self._block_of and block not in self._chain_of:
            self._block_of[chain] = block
            self._chain_of[block] = chain

    def release(self, blocks: Sequence[int]) -> None:
        """Refer no more. The end of a prefix is reclaimed before its beginning, which more sequences share."""
        for block in reversed(blocks):
            self._references[block] -= 1
            if not self._references[block]:
                self._idle[block] = None

    def _forget(self, block: int) -> None:
        chain = self._chain_of.pop(block, None)
        if chain is not None:
            del self._block_of[chain]
