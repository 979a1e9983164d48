"""KV blocks: shared by prefix, kept after use, reclaimed oldest first, never more than the capacity."""

from array import array

import pytest

from loadtest.blocks import BlockPool, Chain, extend, root


def chains(*blocks: int, salt: str | None = None) -> list[Chain]:
    """The chains of blocks that hold one repeated token each."""
    made = [root(salt)]
    for block in blocks:
        made.append(extend(made[-1], array("I", [block] * 16)))
    return made[1:]


def filled(pool: BlockPool, prefix: list[Chain]) -> list[int]:
    blocks = pool.take(len(prefix))
    for block, chain in zip(blocks, prefix, strict=True):
        pool.publish(block, chain)
    return blocks


def test_a_chain_depends_on_everything_before_it() -> None:
    assert chains(1, 2)[1] != chains(3, 2)[1]
    assert chains(1, 2) == chains(1, 2)


def test_salts_never_meet() -> None:
    assert not set(chains(1, 2, salt="a")) & set(chains(1, 2, salt="b"))
    assert not set(chains(1, 2, salt="a")) & set(chains(1, 2))


def test_the_longest_known_prefix_is_found() -> None:
    pool = BlockPool(4)
    blocks = filled(pool, chains(1, 2))
    assert pool.cached(chains(1, 2, 3)) == blocks
    assert pool.cached(chains(9, 2, 3)) == []


def test_released_blocks_keep_their_content_until_room_is_needed() -> None:
    pool = BlockPool(2)
    pool.release(filled(pool, chains(1, 2)))
    assert pool.used == 0
    assert len(pool.cached(chains(1, 2))) == 2
    pool.take(1)
    assert len(pool.cached(chains(1, 2))) == 1, "the end of a prefix goes before its beginning"


def test_what_sat_idle_longest_goes_first() -> None:
    pool = BlockPool(2)
    old, new = filled(pool, chains(1)), filled(pool, chains(2))
    pool.release(old)
    pool.release(new)
    pool.take(1)
    assert pool.cached(chains(1)) == []
    assert pool.cached(chains(2)) == new


def test_a_shared_block_is_used_until_the_last_one_lets_go() -> None:
    pool = BlockPool(2)
    blocks = filled(pool, chains(1))
    pool.share(blocks)
    pool.release(blocks)
    assert pool.used == 1
    pool.release(blocks)
    assert pool.used == 0


def test_idle_shared_blocks_count_against_the_room() -> None:
    pool = BlockPool(2)
    blocks = filled(pool, chains(1))
    pool.release(blocks)
    assert pool.fits(2)
    assert not pool.fits(2, shared=blocks)
    assert pool.fits(1, shared=blocks)


def test_the_first_block_of_a_chain_is_the_one_that_is_shared() -> None:
    pool = BlockPool(2)
    first, second = filled(pool, chains(1)), filled(pool, chains(1))
    assert pool.cached(chains(1)) == first != second


def test_a_cache_without_blocks_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one block"):
        BlockPool(0)
